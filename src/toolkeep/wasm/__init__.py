"""HOW A WASM MODULE IS CONFINED: mechanism only, knows no tool and no policy."""
