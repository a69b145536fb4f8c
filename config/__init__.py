"""What `serve_config.yaml` may say, for whoever reads it: the deployments and the jobs."""
