"""What every algorithm stands on: access models, policies, networks, regression, files."""
