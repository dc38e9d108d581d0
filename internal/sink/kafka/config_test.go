package kafka

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

// What a configuration names is there. The rest of it is checked in package config.
func TestDefaults(t *testing.T) {
	header := toTopic(t, "{aggregate}")
	header.Headers = []setting.NamedColumn{{Name: "x", Column: "missing"}}
	for name, cfg := range map[string]Config{
		"a header of a column that is not read": {RecordConfig: header},
		"a topic of a column that is not read":  {RecordConfig: toTopic(t, "{column:missing}")},
		"an unknown compression":                {RecordConfig: toTopic(t, "t"), Compression: "brotli"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
