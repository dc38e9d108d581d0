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

// entry is the verdict that was given on a property; nil for none.
func (b *Builder) entry(p *settings.Property) *output.Entry {
	i := slices.IndexFunc(b.Entries, func(e output.Entry) bool { return e.Property == p.Written && e.File == p.File })
	if i < 0 {
		return nil
	}
	return &b.Entries[i]
}

// warnLater adds a warning to the verdict on a property.
func (b *Builder) warnLater(p *settings.Property, why string) {
	if e := b.entry(p); e != nil && e.Verdict != output.Cannot {
		e.Why, e.Warning = why, true
	}
}

const compatOptions = "sink.compat.options"

func firstOf(s string, _ bool) string { return s }
