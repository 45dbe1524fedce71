"""Small modules beside the matrices of a model, which train in their place."""
