"""The lab in containers, on a real engine (`just compose-test`)."""
