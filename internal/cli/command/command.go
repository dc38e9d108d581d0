// Package command has what the commands share: the configuration of -c, errors of usage, exit
// codes, times on the command line, output, and the way to a running relay.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// Where the configuration is when the command line has no -c.
const (
	DefaultConfigFile = "cdc-relay.yaml"
	ConfigVariable    = "CDC_RELAY_CONFIG"
)

// OrderByBeginUsage is the help of --order-by-begin, which several commands have.
const OrderByBeginUsage = "with --order-by: accept a column that is set when a transaction\nbegins, as DEFAULT now() is"

// Options is what every command gets: the global flag, and facts about this process.
type Options struct {
	ConfigPath string // the value of -c; "" when it was not given
	// the command line was correct and its command began, so that an error is no error of usage
	Started bool
	Build   Build // of this binary
}

// Load reads the configuration of -c, else of $CDC_RELAY_CONFIG, else ./cdc-relay.yaml. Only the
// last file may be missing: then the environment must have the whole configuration. Variables of
// the environment that look like keys, but are not, are printed on stderr.
func (g *Options) Load() (*config.Config, error) {
	c, err := config.Load(g.Path(), os.Environ())
	if err == nil {
		for _, sentence := range c.NotRead {
			fmt.Fprintln(os.Stderr, "cdc-relay: warning: "+sentence)
		}
	}
	return c, err
}

// Path returns the path of the configuration file, or "" when there is none.
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

// Source reads what a command needs that talks to the database alone: the configuration, the
// settings of the source, and a logger for people.
func (g *Options) Source() (*config.Config, source.Config, *zap.Logger, error) {
	c, err := g.Load()
	if err != nil {
		return nil, source.Config{}, nil, err
	}
	log := wiring.NewLogger(config.Log{Level: c.Log.Level, Format: "console"}, nil)
	rc, err := wiring.Replication(c, wiring.SinkColumns(c), log)
	return c, rc, log, err
}

// NoArgs is the cobra Args of a command that takes no argument. Its error helps with a forgotten
// -c.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	fix := ""
	if ext := filepath.Ext(args[0]); ext == ".yaml" || ext == ".yml" {
		fix = "; name the configuration file with -c " + args[0]
	}
	return UsageError(fmt.Sprintf("`%s` takes no argument, has %q%s", cmd.CommandPath(), args[0], fix))
}

// OneArg makes the cobra Args of a command that takes one argument. what names the argument and
// such is an example, for the error. The argument may be left out when least is 0.
func OneArg(least int, what, such string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= 1 && !slices.Contains(args, "") {
			return nil
		}
		return UsageError(fmt.Sprintf("`%s` wants %s, such as `%[1]s %[3]s`", cmd.CommandPath(), what, such))
	}
}

// FlagError makes an error of usage of pflag's error about a flag.
func FlagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		want := "; want " + map[string]string{
			"int": "a whole number", "int64": "a whole number", "duration": "a time such as 30s or 1d",
			"bool": "true or false", "stringToString": "NAME=VALUE",
		}[value.GetFlag().Value.Type()]
		if want == "; want " {
			want = ": " + value.Unwrap().Error()
		}
		return UsageError(fmt.Sprintf("--%s is %q%s", value.GetFlag().Name, value.GetValue(), want))
	case errors.As(err, &missing):
		return UsageError(fmt.Sprintf("--%s needs a value", missing.GetFlag().Name))
	case errors.As(err, &unknown):
		flag := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			flag = "-" + unknown.GetSpecifiedName()
		}
		return UsageError(fmt.Sprintf("unknown flag: %s; `%s --help` lists the flags", flag, cmd.CommandPath()))
	}
	return UsageError(err.Error())
}

// NeedsSubcommand is the cobra RunE of a command that only groups others. Without it cobra would
// print the help and exit 0 for a misspelt subcommand.
func NeedsSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	what := fmt.Sprintf("`%s` wants one of %s", cmd.CommandPath(), strings.Join(names, ", "))
	if len(args) > 0 {
		what += ", not " + args[0]
	}
	return UsageError(what)
}

// UnknownCommand returns the error for an unknown command, with commands that may be meant: those
// with a similar name, or else those with this name in a group. Names in groups come second because
// "dead-letter list" would otherwise lead to `deferred dead-letter`, which gives events up.
func UnknownCommand(root *cobra.Command, name string) error {
	var meant []string
	root.SuggestionsMinimumDistance = 2
	for _, near := range root.SuggestionsFor(name) {
		meant = append(meant, "`"+root.Name()+" "+near+"`")
	}
	if len(meant) == 0 {
		for _, group := range root.Commands() {
			for _, sub := range group.Commands() {
				if sub.Name() == name && group.Name() != "completion" {
					meant = append(meant, "`"+sub.CommandPath()+"`")
				}
			}
		}
	}
	if len(meant) == 0 {
		return UsageError(fmt.Sprintf("unknown command %q; `%s --help` lists the commands", name, root.Name()))
	}
	return UsageError(fmt.Sprintf("unknown command %q; there is %s", name, strings.Join(meant, ", ")))
}

// UsageError is the error for a wrong command line. The process exits with code 2.
func UsageError(what string) error {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what}
}

// ExitCode returns the exit code for an error: that of a Stop; 2 for an error from before the
// command began, such as an unknown flag; otherwise 1.
func ExitCode(err error, started bool) int {
	var stop *event.Stop
	switch {
	case err == nil:
		return event.ExitOK
	case errors.As(err, &stop):
		return stop.Code
	case !started:
		return event.ExitUsage
	}
	return event.ExitFailure
}

// Logged is an error that was already logged or shown. Execute does not print it again.
type Logged struct{ Err error }

// Error implements error.
func (l Logged) Error() string { return l.Err.Error() }

// Unwrap returns the error that was logged.
func (l Logged) Unwrap() error { return l.Err }

// ParseTime reads a time on the command line: RFC 3339, a date, a date and a time, or how long ago,
// also in days.
func ParseTime(s string, now time.Time) (time.Time, error) {
	if ago, err := setting.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a time in UTC such as 2026-11-20, 2026-11-20T15:04:05Z or \"2026-11-20 15:04\", or how long ago, such as 90m or 7d")
}

// duration is the pflag.Value of a time span in the grammar of the configuration.
type duration time.Duration

// Duration adds a flag for a time span such as 30s, 1h30m or 7d.
func Duration(flags *pflag.FlagSet, at *time.Duration, name string, otherwise time.Duration, usage string) {
	*at = otherwise
	flags.Var((*duration)(at), name, usage)
}

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	span, err := setting.ParseDuration(s)
	*d = duration(span)
	return err
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }

// String implements pflag.Value. It returns "0" for no time, which help does not print as a
// default.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return setting.ShowDuration(time.Duration(*d))
}

// Build says which binary this is.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // "" when it is not known, as for a build outside a checkout
	Date     string `json:"date"`     // of the commit, RFC 3339; "" when it is not known
	Modified bool   `json:"modified"` // the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Linked is what the linker was told of a build. Where a field is "", ThisBuild uses what go build
// has recorded.
type Linked struct {
	Version string
	Commit  string // with "-dirty" when the checkout had changes
	Date    string // of the commit
}

// ThisBuild returns what is known of this binary.
func ThisBuild(linked Linked) Build {
	b := Build{Version: linked.Version, Date: linked.Date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b.Commit, b.Modified = strings.CutSuffix(linked.Commit, "-dirty")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Commit != "" {
		return b
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			b.Date = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String returns the build as one line.
func (b Build) String() string {
	out := "cdc-relay " + b.Version
	if b.Commit != "" {
		out += " (" + b.Commit
		if b.Date != "" {
			out += " of " + b.Date
		}
		if b.Modified {
			out += ", modified"
		}
		out += ")"
	}
	return out + " " + b.Go + " " + b.Platform
}
