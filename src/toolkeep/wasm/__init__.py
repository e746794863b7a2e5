"""WASM sandbox on wasmtime: mechanism only, knows no tool and no policy."""
