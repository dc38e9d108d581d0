// Package command is what the commands share: the configuration of -c, errors of usage, exit codes,
// times on the command line.
package command

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// Where the configuration is when -c is not given.
const (
	DefaultConfigFile = "cdc-relay.yaml"
	ConfigVariable    = "CDC_RELAY_CONFIG"
)

// Options is what the commands share.
type Options struct {
	ConfigPath string // of -c; "" when it was not given
	Started    bool   // the command line was understood and its command began
	Build      Build  // this binary
}

// Load reads the configuration of -c, else of $CDC_RELAY_CONFIG, else ./cdc-relay.yaml. Only the
// last file may be missing: then the environment must have the whole configuration.
func (g *Options) Load() (*config.Config, error) { return config.Load(g.Path(), os.Environ()) }

// Path returns the path of the configuration file; "" when there is none.
func (g *Options) Path() string {
	path := cmp.Or(g.ConfigPath, os.Getenv(ConfigVariable))
	if path == "" {
		path = DefaultConfigFile
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			path = ""
		}
	}
	return path
}

// DatabaseTimeout is how long the database may take to answer.
const DatabaseTimeout = 10 * time.Second

// Source is what a command needs that talks to the database alone.
func (g *Options) Source() (*config.Config, source.Config, *zap.Logger, error) {
	c, err := g.Load()
	if err != nil {
		return nil, source.Config{}, nil, err
	}
	log, _ := wiring.NewLogger(config.Log{Level: c.Log.Level, Format: "console"})
	rc, err := wiring.Replication(c, wiring.SinkColumns(c), log)
	return c, rc, log, err
}
