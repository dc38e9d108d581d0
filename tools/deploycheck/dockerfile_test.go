package deploycheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const dockerfile, shopDockerfile = "deploy/Dockerfile", "deploy/shop.Dockerfile"

// stages parses a Dockerfile as BuildKit does; a warning is an error.
func stages(dockerfile string) ([]instructions.Stage, []instructions.ArgCommand, error) {
	text, err := os.ReadFile(filepath.Join(root, dockerfile))
	if err != nil {
		return nil, nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	if len(tree.Warnings) > 0 {
		return nil, nil, errors.New(tree.Warnings[0].Short)
	}
	return instructions.Parse(tree.AST, nil)
}

// buildAsInTheImage copies what a Dockerfile copies, from what its .dockerignore lets in, and runs
// its RUN lines. It gives the first binary that the image has.
func buildAsInTheImage(dockerfile, dir string) (string, error) {
	list, _, err := stages(dockerfile)
	if err != nil {
		return "", err
	}
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	built := false
	for _, command := range list[0].Commands {
		switch c := command.(type) {
		case *instructions.CopyCommand:
			for _, from := range c.SourcePaths {
				to := filepath.Join(src, c.DestPath)
				if strings.HasSuffix(c.DestPath, "/") {
					to = filepath.Join(to, from)
				}
				if err := copyTree(dockerfile, from, to); err != nil {
					return "", err
				}
			}
		case *instructions.RunCommand:
			line := strings.ReplaceAll(strings.Join(c.CmdLine, " "), "/out/", out+"/")
			built = built || strings.Contains(line, "go build")
			if err := runLine(src, line); err != nil {
				return "", err
			}
		}
	}
	if !built {
		return "", errors.New("no line builds it")
	}
	for _, command := range list[1].Commands {
		if c, ok := command.(*instructions.CopyCommand); ok && strings.HasPrefix(c.DestPath, "/usr/local/bin/") {
			return filepath.Join(out, filepath.Base(c.SourcePaths[0])), nil
		}
	}
	return "", errors.New("no line copies it to /usr/local/bin")
}

func runLine(dir, line string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=", "VERSION="+testVersion, "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, text)
	}
	return nil
}

// copyTree copies what the .dockerignore does not keep out.
func copyTree(dockerfile, from, to string) error {
	return filepath.WalkDir(filepath.Join(root, from), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.Join(root, from), path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(filepath.Join(from, rel))
		switch {
		case ignored(dockerfile, name) && entry.IsDir():
			return fs.SkipDir
		case ignored(dockerfile, name):
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
}

// ignored is the meaning of the three kinds of lines below its *: !NAME lets a tree in, NAME keeps
// one out, **/PATTERN any of that name.
func ignored(dockerfile, name string) bool {
	text, err := os.ReadFile(filepath.Join(root, dockerfile+".dockerignore"))
	if err != nil {
		return true
	}
	out := true
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		under := func(tree string) bool { return name == tree || strings.HasPrefix(name, tree+"/") }
		pattern, anywhere := strings.CutPrefix(line, "**/")
		tree, back := strings.CutPrefix(line, "!")
		switch {
		case line == "" || line == "*" || strings.HasPrefix(line, "#"):
		case back && under(tree):
			out = false
		case anywhere && slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return matches(pattern, part) }):
			out = true
		case !back && !anywhere && under(line):
			out = true
		}
	}
	return out
}

func matches(pattern, name string) bool {
	ok, err := filepath.Match(pattern, name)
	return ok && err == nil
}

// The image has one binary, and runs as a number that is not root. TestImages builds it.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	list, args, err := stages(dockerfile)
	must(t, err)
	if len(list) != 2 || list[1].BaseName != "scratch" {
		t.Fatalf("want a stage that builds and one from scratch, got %d", len(list))
	}
	if len(args) != 1 || args[0].Args[0].Key != "GO_VERSION" || !strings.Contains(read(t, "go.mod"), "\ngo "+*args[0].Args[0].Value+".") {
		t.Errorf("GO_VERSION is not that of go.mod: %v", args)
	}

	found := map[string]bool{}
	for _, command := range list[1].Commands {
		found[command.Name()] = true
		switch c := command.(type) {
		case *instructions.UserCommand:
			if c.User != "65532:65532" {
				t.Errorf("USER %s", c.User)
			}
		case *instructions.ExposeCommand:
			if want := port(t, configuration(t, "deploy/compose/rabbitmq.yaml")["admin.metrics_listen"]); len(c.Ports) != 1 || c.Ports[0] != want {
				t.Errorf("EXPOSE %v, the relay of compose.yaml listens on %s", c.Ports, want)
			}
		case *instructions.EntrypointCommand:
			if !slices.Equal(c.CmdLine, []string{"cdc-relay"}) || c.PrependShell {
				t.Errorf("ENTRYPOINT %v (shell %v)", c.CmdLine, c.PrependShell)
			}
		case *instructions.CmdCommand:
			isCommand(t, c.CmdLine)
		case *instructions.HealthCheckCommand:
			if c.Health.Test[0] != "CMD" || c.Health.Test[1] != "cdc-relay" {
				t.Errorf("HEALTHCHECK %v wants a shell or another program", c.Health.Test)
			}
			isCommand(t, c.Health.Test[2:])
		case *instructions.CopyCommand:
			if c.From == "" && len(c.SourcePaths) == 1 && ignored(dockerfile, c.SourcePaths[0]) {
				t.Errorf("COPY %s: .dockerignore keeps it out", c.SourcePaths[0])
			}
		}
	}
	for _, name := range []string{"user", "expose", "entrypoint", "cmd", "healthcheck", "copy", "label", "env"} {
		if !found[strings.ToLower(name)] && !found[strings.ToUpper(name)] {
			t.Errorf("the image has no %s", name)
		}
	}
	// The build needs what is let in, and nothing of the tests is.
	for name, want := range map[string]bool{
		"cmd/cdc-relay/main.go": false, "internal/relay/story_test.go": true, "internal/relay/testdata/x": true, "internal/devenv/check.go": true,
		".git/config": true, "go.sum": false, "test/cli/rig_test.go": true, "internal/replication/schema/migrations/001_tables.sql": false,
	} {
		if ignored(dockerfile, name) != want {
			t.Errorf("ignored(%s) = %v", name, !want)
		}
	}
}

// scripts/pins.sh writes what the registry answers for an image, and the repository for an action,
// into each place that names it, and nothing where it has no answer. A second run renews them.
func TestPins(t *testing.T) {
	t.Parallel()
	dir, bin := t.TempDir(), t.TempDir()
	const ours = "services: {}\n  image: cdc-relay\n"
	const compose, docker, workflow = "deploy/compose.yaml", "deploy/Dockerfile", ".github/workflows/push.yml"
	texts := map[string]string{
		compose:  ours + "  image: known/one:1.2\n    image: known/one:1.2 # why\n  image: known/one:1.2.3\n  image: unknown:7\n",
		docker:   "# syntax=known/front:1\nARG GO_VERSION=1.26\nFROM --platform=$BUILDPLATFORM known/go:${GO_VERSION}-x AS build\nFROM scratch\n",
		workflow: "      - uses: known/action@v4\n        with: {x: y}\n      - uses: known/action/part@v4\n      - uses: unknown/action@v1\n",
	}
	for name, text := range texts {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	answer := func(digit string, images, repositories []string) {
		script := "#!/bin/sh\nfor image; do :; done\ncase $image in\n"
		for i, name := range images {
			script += name + ") echo sha256:" + strings.Repeat(digit, 63) + strconv.Itoa(i) + ";;\n"
		}
		must(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(script+"unknown:7) echo none;;\n*) exit 1\nesac\n"), 0o700))
		// a tag with a message: its own hash first, then the commit's
		script = "#!/bin/sh\ncase $2 in\n"
		for _, name := range repositories {
			script += "https://github.com/" + name + ") printf '" + strings.Repeat("f", 40) + "\\t%s\\n" + strings.Repeat(digit, 40) + "\\t%s\\n' $3 $4;;\n"
		}
		must(t, os.WriteFile(filepath.Join(bin, "git"), []byte(script+"*) exit 128\nesac\n"), 0o700))
	}
	run := func() error {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/pins.sh"), dir)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		return cmd.Run()
	}
	for _, digit := range []string{"a", "b"} {
		answer(digit, []string{"known/one:1.2", "known/go:1.26-x", "known/front:1"}, []string{"known/action"})
		if run() == nil {
			t.Error("it does not fail without an answer")
		}
		at := func(i int) string { return "@sha256:" + strings.Repeat(digit, 63) + strconv.Itoa(i) }
		commit := "@" + strings.Repeat(digit, 40) + " # v4\n"
		for name, want := range map[string]string{
			compose:  strings.NewReplacer("1.2\n", "1.2"+at(0)+"\n", "1.2 #", "1.2"+at(0)+" #").Replace(texts[compose]),
			docker:   strings.NewReplacer("front:1\n", "front:1"+at(2)+"\n", "}-x", "}-x"+at(1)).Replace(texts[docker]),
			workflow: strings.ReplaceAll(texts[workflow], "@v4\n", commit),
		} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s is\n%s\nwant\n%s\n%v", name, got, want, err)
			}
		}
	}
	answer("c", []string{"known/one:1.2", "known/one:1.2.3", "known/go:1.26-x", "known/front:1", "unknown:7"}, []string{"known/action", "unknown/action"})
	must(t, run())
}

// The image of the shop's services has both, runs as the same number, and is built from what users
// of the packages have.
func TestShopDockerfile(t *testing.T) {
	t.Parallel()
	list, args, err := stages(shopDockerfile)
	must(t, err)
	of, _, err := stages(dockerfile)
	must(t, err)
	if len(list) != 2 || list[1].BaseName != "scratch" || len(args) != 1 || !strings.Contains(read(t, "go.mod"), "\ngo "+*args[0].Args[0].Value+".") {
		t.Fatalf("want a stage that builds with Go of go.mod, and one from scratch: %v", args)
	}
	if list[0].BaseName != of[0].BaseName {
		t.Errorf("it is built with %s, the relay with %s", list[0].BaseName, of[0].BaseName)
	}
	for _, name := range []string{"order-service", "notification-service"} {
		if s := composed(t, "shop").Services[name]; !slices.Equal(s.Command, []string{name}) {
			t.Errorf("%s runs %v", name, s.Command)
		}
	}
	for _, command := range list[1].Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			if c.User != "65532:65532" {
				t.Errorf("USER %s", c.User)
			}
		case *instructions.CopyCommand:
			if c.DestPath == "/usr/local/bin/" && !slices.Equal(c.SourcePaths, []string{"/out/order-service", "/out/notification-service"}) {
				t.Errorf("COPY %v", c.SourcePaths)
			}
		}
	}
	for name, want := range map[string]bool{"internal/relay/relay.go": true, "inbox/rabbit/example_test.go": true, "inbox/test/core/rig_test.go": true, "outbox/outbox.go": false} {
		if ignored(shopDockerfile, name) != want {
			t.Errorf("ignored(%s) = %v", name, !want)
		}
	}
}

// isCommand checks that the relay has a command with these flags.
func isCommand(t *testing.T, args []string) {
	t.Helper()
	help, err := runs(t, nil, relay, append(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") }), "--help")...)
	if err != nil || len(args) == 0 || !strings.Contains(help, "cdc-relay "+args[0]) {
		t.Errorf("there is no command %v: %v", args, err)
		return
	}
	for _, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "--") && !strings.Contains(help, name+" ") && !strings.Contains(help, name+"\n") {
			t.Errorf("%v: there is no flag %s", args, name)
		}
	}
}

// A LABEL, ENV or definition that is JSON must be one: the broker's definitions are.
func TestRabbitMQDefinitions(t *testing.T) {
	t.Parallel()
	var definitions struct {
		Users     []struct{ Name string }
		Exchanges []struct{ Name, Type string }
		Queues    []struct{ Name string }
		Bindings  []struct {
			Source, Destination string
			RoutingKey          string `json:"routing_key"`
		}
	}
	must(t, json.Unmarshal([]byte(read(t, "deploy/compose/rabbitmq-definitions.json")), &definitions))
	config := configuration(t, "deploy/compose/rabbitmq.yaml")
	if !slices.ContainsFunc(definitions.Exchanges, func(e struct{ Name, Type string }) bool { return e.Name == config["sink.rabbitmq.exchange"] }) {
		t.Errorf("no exchange %v", config["sink.rabbitmq.exchange"])
	}
	if len(definitions.Bindings) != 1 || definitions.Bindings[0].Destination != definitions.Queues[0].Name || definitions.Bindings[0].RoutingKey != "#" {
		t.Errorf("bindings %+v, queues %+v", definitions.Bindings, definitions.Queues)
	}
}
