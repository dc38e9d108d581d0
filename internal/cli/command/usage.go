// Errors of the command line, in place of cobra's own texts.

package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NoArgs is the Args of a command that takes none.
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

// OneArg is the Args of a command that takes one argument. what names the argument, such is an
// example. The argument may be left out when least is 0.
func OneArg(least int, what, such string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= 1 && !slices.Contains(args, "") {
			return nil
		}
		return UsageError(fmt.Sprintf("`%s` wants %s, such as `%[1]s %[3]s`", cmd.CommandPath(), what, such))
	}
}

// FlagError reports an error of a flag.
func FlagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value):
		want := "; want " + map[string]string{
			"int": "a whole number", "int64": "a whole number", "duration": "a time such as 30s",
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

// NeedsSubcommand is the RunE of a command that only groups others: cobra would print its help and
// exit 0 on a misspelt one.
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

// UnknownCommand returns the error for an unknown command. It suggests commands: those with this
// name in a group, else those with a similar name.
func UnknownCommand(root *cobra.Command, name string) error {
	var meant []string
	for _, group := range root.Commands() {
		for _, sub := range group.Commands() {
			if sub.Name() == name && group.Name() != "completion" {
				meant = append(meant, "`"+sub.CommandPath()+"`")
			}
		}
	}
	if len(meant) == 0 {
		root.SuggestionsMinimumDistance = 2
		for _, near := range root.SuggestionsFor(name) {
			meant = append(meant, "`"+root.Name()+" "+near+"`")
		}
	}
	if len(meant) == 0 {
		return UsageError(fmt.Sprintf("unknown command %q; `%s --help` lists the commands", name, root.Name()))
	}
	return UsageError(fmt.Sprintf("unknown command %q; there is %s", name, strings.Join(meant, ", ")))
}
