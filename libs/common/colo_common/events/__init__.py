"""The wire contract: a struct for each subject, the registry of subjects, encoding."""
