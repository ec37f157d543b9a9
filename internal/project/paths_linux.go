package project

// maxSocketPath is the size of sun_path, 108 bytes, less its NUL.
const maxSocketPath = 107

// spelling returns path: names are compared byte by byte on Linux.
func spelling(path string) string { return path }
