// The command import debezium: it reads the files, and importer converts them.

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer"
	"github.com/cdc-relay/cdc-relay/internal/printable"
)

// newImport makes the command import, which groups import debezium.
func newImport() *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Create cdc-relay.yaml from a Debezium configuration", RunE: command.NeedsSubcommand}
	cmd.AddCommand(newImportDebezium())
	return cmd
}

type importOptions struct {
	out, worker string
	force       bool
}

// newImportDebezium makes the command import debezium.
func newImportDebezium() *cobra.Command {
	var opt importOptions
	cmd := &cobra.Command{
		Use:   "debezium FILE",
		Short: "Create cdc-relay.yaml from a Debezium outbox connector or Debezium Server",
		Long: `Reads a Debezium configuration and writes one for the relay that publishes the same records. For
Kafka Connect, pass the connector's JSON or .properties or Strimzi's KafkaConnector, and the
worker's file with --worker-config. For Debezium Server, pass application.properties. "-" is stdin.

A report gives a verdict on each property: honoured, superseded or cannot. If one is
"cannot", nothing is written and the exit code is 2, unless --force. The command connects to
nothing. The report goes to stderr when the configuration goes to stdout, else to stdout. Passwords
are not copied: a variable stands in their place.
docs/reference.md#debezium-properties explains each verdict.`,
		Example: `  cdc-relay import debezium connector.json --worker-config worker.properties -o cdc-relay.yaml
  cdc-relay import debezium application.properties -o cdc-relay.yaml
  curl -s http://connect:8083/connectors/orders-outbox | cdc-relay import debezium -`,
		Args: fileArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return importDebezium(args[0], opt, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVarP(&opt.out, "out", "o", "", "file to write; it must not exist (default stdout)")
	cmd.Flags().StringVar(&opt.worker, "worker-config", "", "the Connect worker's .properties (- for stdin)")
	cmd.Flags().BoolVar(&opt.force, "force", false, "write the configuration even if some of it cannot be carried over")
	if err := errors.Join(cmd.MarkFlagFilename("out", "yaml", "yml"), cmd.MarkFlagFilename("worker-config", "properties", "env")); err != nil {
		panic(err) // cannot happen: the flag exists
	}
	return cmd
}

// fileArgs is the cobra Args of a command that reads one file.
func fileArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return importError(cmd.CommandPath()+" wants one FILE", nil, "name the connector's JSON or .properties, application.properties, or - for stdin; two connectors are not one: import each for a relay of its own")
}

// importDebezium converts the file at path. It prints the report, and writes the configuration
// unless a property cannot be converted.
func importDebezium(path string, opt importOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	result, err := readImport(path, opt.worker, stdin)
	if err != nil {
		return importError("import", err, "")
	}
	cannot := result.Count(importer.Cannot)
	report := stderr
	if opt.out != "" {
		report = stdout
	}
	if err := result.Report(printable.Text(report)); err != nil {
		return err
	}
	switch {
	case cannot > 0 && !opt.force:
		return importError(fmt.Sprintf("nothing is written: %d of %d settings cannot be carried over", cannot, len(result.Entries)), nil,
			"see above what each of them needs, or write what is left with --force")
	case opt.out == "":
		return result.Write(stdout)
	}
	return writeImport(result, opt.out)
}

// importError is the error (exit 2) for a file that cannot be imported.
func importError(what string, err error, fix string) error {
	return &event.Stop{Code: event.ExitUsage, Reason: "import", What: what, Err: err, Fix: fix}
}

// readImport reads the connector's file and the worker's. One of the two may be stdin.
func readImport(path, workerPath string, stdin io.Reader) (*importer.Result, error) {
	if path == "-" && workerPath == "-" {
		return nil, errors.New("- is given twice, and stdin can be read once")
	}
	var inputs [2]importer.Input
	for i, name := range []string{path, workerPath} {
		var err error
		switch inputs[i].Name = name; name {
		case "":
		case "-":
			inputs[i].Name = "stdin"
			inputs[i].Content, err = io.ReadAll(stdin)
		default:
			inputs[i].Content, err = os.ReadFile(filepath.Clean(name))
		}
		if err != nil {
			return nil, err
		}
	}
	if workerPath == "" {
		return importer.Import(inputs[0], nil)
	}
	return importer.Import(inputs[0], &inputs[1])
}

// writeImport creates the file, readable by its owner only. It does not replace a file that exists.
func writeImport(result *importer.Result, path string) (err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			return importError(path+" exists", errors.New("nothing is overwritten"), "remove it, or name another file")
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(path)))
		}
	}()
	return result.Write(f)
}
