"""The webhooks process: posts the end of a job's runs to the address that the job names, signed."""
