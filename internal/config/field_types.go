// The types of keys that only the configuration has.

package config

import (
	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

func (l *loader) tablesKey(path string) setting.Key {
	return setting.Key{
		Name: path, Kind: document.List, Form: l.tableList(),
		Set:  func(_ *setting.Reader, path string, n *document.Node) { l.tables(path, n) },
		Show: func() string { return l.showTables() },
	}
}

// emptySection is a sink without keys: naming it chooses it.
func emptySection(path string) setting.Key {
	return setting.Key{
		Name: path, Kind: document.Mapping, Form: setting.Form{"type": "object", "maxProperties": 0},
		Set: func(r *setting.Reader, path string, n *document.Node) {
			if n.Kind != document.Mapping || len(n.Entries) > 0 {
				r.Fault(n.Where, path, "has no keys; {} chooses it")
			}
		},
		Show: func() string { return "{}" },
	}
}
