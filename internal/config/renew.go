// What a running relay takes of a configuration that was read again.

package config

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Renew compares the running configuration with another reading of it. It takes over the level of
// the log and passwords, and names the keys of these, and then those that need a restart. Addresses
// need one though they may have a password: another server is not a change to make between two
// connects.
//
// Secrets in files are not compared, because they are read again at every use anyway.
func (c *Config) Renew(again *Config) (renewed, needRestart []string) {
	if c.Sink.Driver != again.Sink.Driver {
		needRestart = append(needRestart, "sink")
	}
	for _, k := range c.keys() {
		i := slices.IndexFunc(again.keys(), func(other setting.Key) bool { return other.Name == k.Name })
		if i < 0 {
			continue // of the other sink
		}
		other := again.keys()[i]
		switch {
		case k.Show() == other.Show() && sameSecrets(&k, &other):
		case k.Name == "log.level":
			c.Log.Level = again.Log.Level
			renewed = append(renewed, k.Name)
		case k.Renew != nil && k.Renew(&other):
			renewed = append(renewed, k.Name)
		default:
			needRestart = append(needRestart, k.Name)
		}
	}
	return renewed, needRestart
}

// keys are those of the configuration, bound to it.
func (c *Config) keys() []setting.Key {
	l := &loader{cfg: c, sections: map[string]sink.Settings{c.Sink.Driver.Name: c.Sink.Settings}}
	return l.fields()
}

func sameSecrets(a, b *setting.Key) bool {
	return a.Secrets == nil || slices.EqualFunc(a.Secrets(), b.Secrets(), setting.Secret.IsWrittenAs)
}
