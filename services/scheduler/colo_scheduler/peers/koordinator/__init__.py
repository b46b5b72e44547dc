"""The rules of Koordinator's scheduler for zones: hints with scores, and an even split over the zones they merge into."""
