// The key sink.compat.options: how its values are read and printed.

package config

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// compatOptions reads names with single values. The profile decides which names exist.
func (l *loader) compatOptions(path string) setting.Key {
	c := &l.cfg.Sink.Compat
	return setting.Key{
		Name: path, Kind: document.Mapping, FromVariable: optionsFromVariable,
		Form: setting.Form{"type": "object", "additionalProperties": setting.OrNothing(setting.AnyText())},
		Set: func(_ *setting.Reader, path string, n *document.Node) {
			if n.Kind != document.Mapping {
				l.Fault(n.Where, path, "wants a mapping of Debezium's options, has "+n.Kind.String())
				return
			}
			for _, e := range n.Entries {
				if e.Value.Kind == document.Null {
					continue
				}
				if value, ok := l.option(join(path, e.Name), e.Value); ok {
					c.Options = append(c.Options, Option{e.Name, value, e.Value.Where})
				}
			}
		},
		Show: func() string { return showOptions(c.Options) },
	}
}

// option reads a single value. ${...} is a reference everywhere in the file, and Debezium has
// references of its own. If one fails here, the fault explains how to write one for Debezium.
func (l *loader) option(path string, n *document.Node) (string, bool) {
	faults := len(l.Faults)
	value, ok := l.Scalar(path, n)
	if !ok && len(l.Faults) > faults && n.Kind == document.Scalar && strings.Contains(n.Text, "${") {
		l.Faults[faults].What += "; a ${...} that is for Debezium is written $${...}"
	}
	return value, ok
}

func showOptions(options []Option) string {
	shown := make([]string, len(options))
	for i, o := range options {
		shown[i] = setting.Quote(o.Name) + ": " + setting.Quote(o.Value)
	}
	return "{" + strings.Join(shown, ", ") + "}"
}

// optionsFromVariable reads name=value,name=value. Values may be lists themselves, so a piece
// without = continues the value before it.
func optionsFromVariable(variable, text string) *document.Node {
	var pieces []string
	for _, piece := range document.SplitList(text) {
		if last := len(pieces) - 1; last >= 0 && !strings.Contains(piece, "=") {
			pieces[last] += "," + piece
			continue
		}
		pieces = append(pieces, piece)
	}
	at := document.Place{Variable: variable}
	out := &document.Node{Kind: document.Mapping, Where: at}
	for _, piece := range pieces {
		name, value, _ := strings.Cut(piece, "=")
		out.Entries = append(out.Entries, document.Entry{
			Name: strings.TrimSpace(name), Where: at, Value: &document.Node{Kind: document.Scalar, Where: at, Text: strings.TrimSpace(value)},
		})
	}
	return out
}
