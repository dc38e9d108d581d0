// Package docs is the documentation, as far as the program itself quotes it.
package docs

import _ "embed" // of the file below

// Configuration is configuration.md: `config schema` describes the keys in its words.
//
//go:embed configuration.md
var Configuration string
