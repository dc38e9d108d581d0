// The builder writes our configuration; what rules share.

package rules

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/settings"
)

// Builder asks the rules about each setting, and gathers the document.
type Builder struct {
	*settings.Settings
	Doc output.Document
}

// Set writes a key of ours that these properties are the reason for.
func (b *Builder) Set(path, scalar string, from ...*settings.Property) {
	b.Doc.Set(path, scalar, origins(from))
}

func origins(from []*settings.Property) string {
	var files, all []string
	for _, p := range from {
		if p == nil {
			continue
		}
		if !slices.Contains(files, p.File) {
			files = append(files, p.File)
		}
		all = append(all, p.Written)
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(files, ", ") + ": " + strings.Join(all, ", ")
}

const compatOptions = "sink.compat.options"

func firstOf(s string, _ bool) string { return s }
