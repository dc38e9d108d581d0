package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	must(t, err)
	return string(text)
}

// docs/configuration.md has a row for every key that the binary prints, with its default, and none
// that does not exist.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	defaults := map[string]string{}
	for _, sink := range []string{"rabbitmq", "kafka", "stdout"} {
		res, err := runner.RunCommand(await.Context(t), binary, "source: {url: postgres://h/d}\nsink: {"+sink+": {}}\n", "config", "print")
		must(t, err)
		var printed map[string]any
		must(t, yaml.Unmarshal([]byte(res.Stdout), &printed))
		flatten("", printed, defaults)
	}
	delete(defaults, "source.url") // has none
	if len(defaults) < 60 {
		t.Fatalf("config print has only %d keys", len(defaults))
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (?:`([^`]*)` |[a-z ]*)\\| ").FindAllStringSubmatch(document(t, "docs/configuration.md"), -1) {
		rows[row[1]] = row[2]
	}
	for key, value := range defaults {
		documented, ok := rows[key]
		if !ok {
			t.Errorf("there is no row for %s", key)
		}
		var read any
		must(t, yaml.Unmarshal([]byte(quoteTemplate(documented)), &read))
		if shown := show(read); shown != value {
			t.Errorf("%s: the default is documented as %s, it is %s", key, shown, value)
		}
	}
	for key := range rows {
		if _, ok := defaults[key]; !ok && key != "source.url" {
			t.Errorf("there is a row for %s, which does not exist", key)
		}
	}
}

// quoteTemplate makes a template that is documented without quotes the YAML string that it is.
func quoteTemplate(s string) string {
	if strings.HasPrefix(s, "{") && s != "{}" {
		return strconv.Quote(s)
	}
	return s
}

// flatten writes every value of nested mappings under its path.
func flatten(path string, v any, into map[string]string) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		into[path] = show(v)
		return
	}
	for name, value := range m {
		flatten(strings.TrimPrefix(path+"."+name, "."), value, into)
	}
}

// show is a value as text; what is empty in any way is "".
func show(v any) string {
	out, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(out))
	if slices.Contains([]string{`""`, "null", "{}", "[]"}, text) {
		return ""
	}
	return text
}

// Every exit code has one row, which names tests that exist.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	exists := testsIn(t, "test/cli", "test/long")
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| .*$`).FindAllStringSubmatch(document(t, "docs/exit-codes.md"), -1)
	for i, row := range rows {
		if row[1] != strconv.Itoa(i) {
			t.Errorf("row %d is about code %s", i, row[1])
		}
		named := regexp.MustCompile(`\bTest\w+`).FindAllString(row[0], -1)
		if len(named) == 0 {
			t.Errorf("code %s has no test", row[1])
		}
		for _, name := range named {
			if exists[name] == "" {
				t.Errorf("code %s names %s, and there is no such test", row[1], name)
			}
		}
	}
	if len(rows) != 6 {
		t.Errorf("there are %d codes, want 0 to 5", len(rows))
	}
}

// Each invariant names tests. Each of them exists in the folder that is named, or below it.
func TestInvariantsNameTheirTests(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile(`(?m)^\| \*\*(I\d+)\*\* \| .* \| (.*) \|$`).FindAllStringSubmatch(document(t, "ARCHITECTURE.md"), -1)
	if len(rows) != 11 {
		t.Fatalf("there are %d invariants, want 11", len(rows))
	}
	for _, row := range rows {
		count := 0
		for part := range strings.SplitSeq(row[2], " · ") {
			where, what, _ := strings.Cut(part, ": ")
			named := regexp.MustCompile(`\bTest\w+`).FindAllString(what, -1)
			if len(named) == 0 {
				continue
			}
			dir := strings.Trim(where, "`")
			if !strings.HasPrefix(dir, "test/") && !strings.HasPrefix(dir, "inbox") {
				dir = "internal/" + dir
			}
			exists := testsIn(t, dir)
			for _, name := range named {
				if count++; exists[name] == "" {
					t.Errorf("%s names %s, and there is no such test in %s", row[1], name, dir)
				}
			}
		}
		if count == 0 {
			t.Errorf("%s names no test", row[1])
		}
	}
}

// testsIn are the tests in some folders and those below them, by name, with the source of their
// package: the name of a part stands there in quotes.
func testsIn(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, dir := range packages(t, dirs) {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		must(t, err)
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			source.Write(text)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source.String(), -1) {
			names[found[1]] = source.String()
		}
	}
	return names
}

// packages are some folders with all those below them.
func packages(t *testing.T, dirs []string) (all []string) {
	t.Helper()
	for _, dir := range dirs {
		must(t, fs.WalkDir(os.DirFS("../.."), dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				all = append(all, path)
			}
			return err
		}))
	}
	return all
}

// Every answer of a broker has a row with its class and reason, and tests that exist; and every
// reason has a row.
func TestBrokerAnswersAreDocumented(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/failure-modes.md")
	reasons := constants(t, "internal/sink/outcome.go", "Reason")
	if len(reasons) < 13 {
		t.Fatalf("only %d reasons were found", len(reasons))
	}
	documented := map[string]bool{}
	for heading, dir := range map[string]string{"What RabbitMQ answers": "internal/sink/rabbit", "What Kafka answers": "internal/sink/kafka"} {
		_, section, ok := strings.Cut(text, "\n### "+heading+"\n")
		if !ok {
			t.Fatalf("there is no section %q", heading)
		}
		section, _, _ = strings.Cut(section, "\n#")
		exists := testsIn(t, dir, "test/fault")
		rows := regexp.MustCompile(`(?m)^\|(.*)\|$`).FindAllStringSubmatch(section, -1)
		if len(rows) < 18 {
			t.Fatalf("%s: %d rows", heading, len(rows))
		}
		for _, row := range rows[1:] { // but for the head
			cells := strings.Split(row[1], "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if strings.HasPrefix(cells[0], "---") {
				continue
			}
			if len(cells) != 6 {
				t.Errorf("%s: %d cells in %s", heading, len(cells), row[1])
				continue
			}
			checkAnswer(t, dir, exists, cells, reasons, documented)
		}
	}
	for _, reason := range reasons {
		if !documented[reason] {
			t.Errorf("the reason %s has no row", reason)
		}
	}
}

// checkAnswer checks the class, the reasons and the tests of one row.
func checkAnswer(t *testing.T, dir string, exists map[string]string, cells, reasons []string, documented map[string]bool) {
	t.Helper()
	class := strings.Trim(cells[1], "`")
	refusal := slices.Contains([]string{sink.Destination.String(), sink.Transient.String(), sink.Permanent.String()}, class)
	if !refusal && class != "confirmed" && class != "unavailable" {
		t.Errorf("%s: class %s", cells[0], cells[1])
	}
	named := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[2], -1)
	if refusal != (len(named) > 0) {
		t.Errorf("%s: %s, and the reasons %q", cells[0], class, cells[2])
	}
	for _, reason := range named {
		if documented[reason[1]] = true; !slices.Contains(reasons, reason[1]) {
			t.Errorf("%s: there is no reason %s", cells[0], reason[1])
		}
	}
	for test := range strings.SplitSeq(cells[5], ", ") {
		name, part, _ := strings.Cut(test, "/")
		if source, ok := exists[name]; !ok || part != "" && !strings.Contains(source, strconv.Quote(part)) {
			t.Errorf("%s: there is no test %q in %s or test/fault", cells[0], test, dir)
		}
	}
}

// constants are the values of a file's string constants of one type.
func constants(t *testing.T, file, typ string) (values []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^\t\w+ +`+typ+` += "(.+?)"`).FindAllStringSubmatch(document(t, file), -1) {
		values = append(values, found[1])
	}
	return values
}

// docs/operations.md names every metric, state and reason.
func TestOperationsAreDocumented(t *testing.T) {
	t.Parallel()
	text := document(t, "docs/operations.md")
	for name := range metricTypes {
		if !regexp.MustCompile("`" + name + "[`{]").MatchString(text) {
			t.Errorf("%s is not named", name)
		}
	}
	for _, state := range []string{
		ops.StateStarting, ops.StateWaiting, ops.StateStandby, ops.StateBrokerDown, ops.StatePaused, ops.StateDeferring,
		ops.StateCatchingUp, ops.StateStreaming, ops.StateIdle, ops.StateStopping, ops.StateStopped,
	} {
		if !strings.Contains(text, "\n| `"+state+"` | ") {
			t.Errorf("the state %q has no row", state)
		}
	}
	for _, reason := range []sink.Reason{
		sink.Unroutable, sink.NoExchange, sink.NoTopic, sink.NoLeader, sink.TooFewReplicas, sink.NotPermitted, sink.Nacked, sink.Unconfirmed, sink.TooLarge, sink.RowTooLarge,
		sink.Invalid, sink.NullInTemplate, sink.BrokerException, sink.Undecodable,
	} {
		if !strings.Contains(text, "`"+string(reason)+"`") {
			t.Errorf("the reason %s is not named", reason)
		}
	}
}

// Every metric that a page or a file of deploy/ names exists in a scrape: TestMetrics compares
// metricTypes with one.
func TestMetricsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	// of a limited slot, of one that has ended, with retention, with a guard, of a failover slot
	sometimes := map[string]bool{
		"outbox_slot_safe_wal_bytes": true, "outbox_stopped": true, "outbox_retention_behind_seconds": true,
		"outbox_guard_active": true, "outbox_guard_full": true, "outbox_slot_waiting_for_standby": true, "outbox_slot_synced": true,
	}
	count := 0
	for _, dir := range []string{"docs", "deploy"} {
		must(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			must(t, err)
			for _, name := range regexp.MustCompile(`\boutbox_[a-z_]*[a-z]\b`).FindAllString(strings.ReplaceAll(string(text), "cdc_relay.outbox_status", "the view"), -1) {
				base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
				if count++; metricTypes[name] == "" && metricTypes[base] != "histogram" && !sometimes[name] {
					t.Errorf("%s names %s, which does not exist", path, name)
				}
			}
			return nil
		}))
	}
	if count < 60 {
		t.Errorf("only %d names of metrics were found", count)
	}
}

// Links in the documents lead somewhere, also those to a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	if len(pages) < 8 {
		t.Fatalf("docs has %d pages", len(pages))
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../ARCHITECTURE.md", "../../deploy/README.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(link[1], "#")
			target := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				target = page
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr != nil || err != nil && !info.IsDir() {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if heading != "" && !slices.Contains(headings(string(content)), heading) {
				t.Errorf("%s links to %s, and there is no such heading", page, link[1])
			}
		}
	}
}

// No page has a line of capitals and underscores alone: that is a place where text was to be filled
// in.
func TestPagesAreComplete(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../ARCHITECTURE.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, line := range regexp.MustCompile(`(?m)^[A-Z_]{3,}$`).FindAllString(string(text), -1) {
			t.Errorf("%s has the line %s", page, line)
		}
	}
}

// headings are the names that links use for a page's headings.
func headings(text string) []string {
	var names []string
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

var blocks = regexp.MustCompile("(?ms)^ *```(yaml|sh)\n(.*?)^ *```$")

// dedent takes away the indentation of a block that stands in a list.
func dedent(block string) string {
	indent := block[:len(block)-len(strings.TrimLeft(block, " "))]
	return strings.ReplaceAll("\n"+block, "\n"+indent, "\n")
}

// Every piece of configuration in the documents and in examples/ is valid, alone or added to the
// smallest one.
func TestConfigurationsOfTheDocuments(t *testing.T) {
	t.Parallel()
	binary := runner.Build(t)
	var configs []string
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			if block[1] == "yaml" {
				configs = append(configs, dedent(block[2]))
			}
		}
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	must(t, err)
	for _, example := range examples {
		text, err := os.ReadFile(example)
		must(t, err)
		configs = append(configs, string(text))
	}
	if len(configs) < 14 {
		t.Fatalf("only %d configurations were found", len(configs))
	}
	for _, config := range configs {
		config = regexp.MustCompile(`\$\{(file:[^}]*|[A-Z_]+)\}`).ReplaceAllString(config, "from-elsewhere")
		if !regexp.MustCompile(`(?m)^source:`).MatchString(config) {
			config = goodSource + config
		}
		res, err := runner.RunCommand(await.Context(t), binary, config, "config", "validate")
		must(t, err)
		if res.Code != 0 {
			t.Errorf("%s\n%s", res.Stderr, config)
		}
	}
}
