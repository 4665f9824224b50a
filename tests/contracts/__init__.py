"""The contracts between services, held by their real code: pacts, the catalogue, and the walk through a change."""
