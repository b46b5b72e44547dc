"""What Koordinator's scheduler does with zones: hints with scores, and an even split over the zones they merge into."""
