package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cdc-relay/cdc-relay/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer"
)

const (
	referencePage = "../../docs/reference.md"
	referenceText = "testdata/reference.md" // what is written by hand
	pageColumns   = 118                     // of prose; a list of a group is indented by two more
	maxColumns    = 120
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference.md again")

// docs/reference.md is what the binary says of its commands, its HTTP paths and its rules for
// Debezium's properties, between what testdata/reference.md has. -rewrite writes it again.
func TestReference(t *testing.T) {
	text := read(t, referenceText)
	for mark, generated := range map[string]string{"commands": commandsPart(), "http": httpPart(t), "debezium": debeziumPart()} {
		before, after, found := strings.Cut(text, "<!-- "+mark+" -->\n")
		if !found {
			t.Fatalf("%s has no mark %q", referenceText, mark)
		}
		text = before + generated + after
	}
	for n, line := range strings.Split(text, "\n") {
		if len([]rune(line)) > maxColumns {
			t.Errorf("line %d has more than %d columns: %s", n+1, maxColumns, line)
		}
	}
	if *rewrite {
		if err := os.WriteFile(referencePage, []byte(text), 0o644); err != nil { //nolint:gosec // a page is for everybody
			t.Fatal(err)
		}
		return
	}
	if text != read(t, referencePage) {
		t.Errorf("%s is not what the binary says: go test ./cmd/cdc-relay -run TestReference -rewrite", referencePage)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commandsPart has a heading for each command of the root. Commands of a group are under its
// heading.
func commandsPart() string {
	root, _ := cli.NewRoot(command.Linked{}, newRun)
	root.InitDefaultCompletionCmd("run")
	var out strings.Builder
	var withJSON []string
	for _, cmd := range root.Commands() {
		fmt.Fprintf(&out, "### %s\n\n", cmd.CommandPath())
		described := []*cobra.Command{cmd}
		if cmd.HasSubCommands() {
			described = cmd.Commands()
		}
		if cmd.Name() == "completion" {
			described = nil
		}
		if len(described) != 1 {
			out.WriteString(prose(describe(cmd)))
		}
		for _, c := range described {
			text := prose("`" + strings.TrimSuffix(c.UseLine(), " [flags]") + "`: " + describe(c))
			if len(described) > 1 {
				text = "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
			}
			out.WriteString(text)
			if c.LocalFlags().Lookup("json") != nil {
				withJSON = append(withJSON, strings.TrimPrefix(c.CommandPath(), "cdc-relay "))
			}
		}
		if len(described) > 1 {
			out.WriteByte('\n')
		}
		out.WriteString(block("text", flags(described)+examples(described)))
	}
	return wrap("", "These print JSON with `--json`: `"+strings.Join(withJSON, "`, `")+"`.") + "\n" + strings.TrimSuffix(out.String(), "\n")
}

// describe is the long description of a command, with its aliases; the short one if it has no long
// one.
func describe(cmd *cobra.Command) string {
	text := cmp.Or(cmd.Long, cmd.Short+".")
	if cmd.Name() == "completion" {
		text = cmd.Short + ": bash, fish, powershell or zsh."
	}
	if len(cmd.Aliases) > 0 {
		text += " Another name of the command is \"" + strings.Join(cmd.Aliases, ", ") + "\"."
	}
	return text
}

// code finds in a help text what a page shows as code: JSON, a quoted text, a flag, a key with its
// value, a path, a variable.
var code = regexp.MustCompile("\\{\"[^}]*\\}|`[^`]+`|\"[^\"\n]+\"|--[a-z][a-z-]*(=[a-z]+)?|[\\w$*-]*[._/][\\w.*/#-]*[\\w*](: (true|false|continue)| = on)?|\\b[A-Z]+_[A-Z_]+\\b")

// prose makes Markdown of a help text. A paragraph that is indented stays as it is, as a block.
func prose(text string) string {
	var out strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			out.WriteString(block("text", paragraph))
			continue
		}
		marked := code.ReplaceAllStringFunc(paragraph, func(s string) string { return "`" + strings.Trim(s, "`\"") + "`" })
		out.WriteString(wrap("", marked) + "\n")
	}
	return out.String()
}

// wrap breaks a text into lines. Those after the first begin with the indent.
func wrap(indent, text string) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > pageColumns:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += n
	}
	return out.String() + "\n"
}

// block is a fenced block; "" of nothing.
func block(language, text string) string {
	if text = strings.Trim(text, "\n"); text == "" {
		return ""
	}
	return "```" + language + "\n" + text + "\n```\n\n"
}

// flags are the flags of commands but for --help and --json, a line each. Those of several commands
// are shown once, after the names of these commands.
func flags(commands []*cobra.Command) string {
	owners, named := map[string][]string{}, map[string]*pflag.Flag{}
	for _, cmd := range commands {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "json" {
				key := f.Name + " " + f.Usage
				owners[key], named[key] = append(owners[key], cmd.Name()), f
			}
		})
	}
	sets, order := map[string]*pflag.FlagSet{}, []string(nil)
	for _, key := range slices.Sorted(maps.Keys(named)) {
		of := strings.Join(owners[key], ", ")
		if sets[of] == nil {
			sets[of] = pflag.NewFlagSet(of, pflag.ContinueOnError)
			order = append(order, of)
		}
		sets[of].AddFlag(named[key])
	}
	var out strings.Builder
	for _, of := range order {
		if len(commands) > 1 {
			fmt.Fprintln(&out, of+":")
		}
		out.WriteString(sets[of].FlagUsages())
	}
	return out.String()
}

// examples are the examples of commands, after an empty line.
func examples(commands []*cobra.Command) string {
	var out strings.Builder
	for _, cmd := range commands {
		if cmd.Example != "" {
			out.WriteString("\n" + regexp.MustCompile(`(?m)^  `).ReplaceAllString(cmd.Example, ""))
		}
	}
	return "\n" + strings.TrimPrefix(out.String(), "\n")
}

// operation is what the OpenAPI document says of a path and a method.
type operation struct {
	Summary, Description string
	Security             *[]any // given and empty: no token is needed
	Responses            map[string]any
}

// httpPart is the paths of the admin port, from its OpenAPI document.
func httpPart(t *testing.T) string {
	t.Helper()
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]any
			Schemas    map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../internal/ops/admin/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	var table, notes strings.Builder
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range []string{"get", "post", "delete"} {
			var op operation
			if raw := document.Paths[path][method]; raw == nil {
				continue
			} else if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			role := "read"
			switch {
			case op.Security != nil && len(*op.Security) == 0:
				role = "none"
			case method != "get":
				role = "operate"
			}
			codes := slices.DeleteFunc(slices.Sorted(maps.Keys(op.Responses)), func(code string) bool { return code == "default" })
			name := "`" + strings.ToUpper(method) + " " + path + "`"
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", name, role, strings.Join(codes, " "), op.Summary)
			if op.Description != "" {
				notes.WriteString(wrap("  ", "- "+name+": "+op.Description))
			}
		}
	}
	var filters, ofLists, ofBulk []string
	bulk := document.Components.Schemas["Bulk"].Properties
	for _, name := range slices.Sorted(maps.Keys(document.Components.Parameters)) {
		switch {
		case bulk[name] != nil:
			filters = append(filters, name)
		case name != "n":
			ofLists = append(ofLists, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bulk)) {
		if !slices.Contains(filters, name) {
			ofBulk = append(ofBulk, name)
		}
	}
	notes.WriteString(wrap("  ", fmt.Sprintf("- Filters, in the query of a list and the body of a bulk request: `%s`. A list also takes `%s`, a bulk request `%s`.",
		strings.Join(filters, "`, `"), strings.Join(ofLists, "`, `"), strings.Join(ofBulk, "`, `"))))
	return "| Method and path | Role | Status | What it does |\n|---|---|---|---|\n" + table.String() + "\n" + notes.String()
}

// debeziumPart is the import's rules for Debezium's properties, by chapter.
func debeziumPart() string {
	var out strings.Builder
	chapter := ""
	importer.Page(func(title string, names []string, verdict importer.Verdict, target, why string) {
		if title != chapter {
			chapter = title
			fmt.Fprintf(&out, "\n### %s\n\n", title)
		}
		parts := []string{"`" + strings.Join(names, "`, `") + "`", string(verdict)}
		if target != "" {
			parts = append(parts, "`"+target+"`")
		}
		if why != "" {
			parts = append(parts, why)
		}
		out.WriteString(wrap("  ", "- "+strings.Join(parts, " · ")))
	})
	return strings.TrimPrefix(out.String(), "\n")
}

// Every line of check that the page has is in the code: a name that is no longer there would stay
// on the page. That every line of check is on the page is shown where check runs.
func TestReferenceOfChecks(t *testing.T) {
	_, table, _ := strings.Cut(read(t, referenceText), "\n| Line | Looks at |\n")
	names := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1)
	if len(names) < 40 {
		t.Fatalf("only %d lines of check were found", len(names))
	}
	var source strings.Builder
	for _, pattern := range []string{"replication/check/*.go", "sink/*/*.go", "sink/*/check/*.go", "wiring/*.go", "cli/*.go"} {
		files, err := filepath.Glob("../../internal/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				source.WriteString(read(t, file))
			}
		}
	}
	for _, name := range names {
		// the names of lines about allow are made of the part's key
		if plain := name[1]; !strings.HasPrefix(plain, "allowed ") && !strings.Contains(source.String(), `"`+plain+`"`) && !strings.Contains(source.String(), `"`+plain+" ") {
			t.Errorf("no line of check is named %q", plain)
		}
	}
}

// Every example is a command line whose flags exist.
func TestExamples(t *testing.T) {
	root, _ := cli.NewRoot(command.Linked{}, newRun)
	count := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, found := range regexp.MustCompile(`cdc-relay ([a-z][^|>\n]*)`).FindAllStringSubmatch(cmd.Example, -1) {
			found := regexp.MustCompile(`'[^']*'|"[^"]*"`).ReplaceAllString(found[1], "x")
			of, args, err := root.Find(strings.Fields(found))
			if err == nil {
				err = of.ParseFlags(args)
			}
			if count++; err != nil || of.HasSubCommands() {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), found, err)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if count < 50 {
		t.Errorf("only %d examples were found", count)
	}
}
