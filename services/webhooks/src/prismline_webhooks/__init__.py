"""The webhooks service: posts the end of each run of a job to the job's target, with a signature."""
