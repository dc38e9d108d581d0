// Command image makes the image of deploy/Dockerfile as an OCI layout, without Docker. The last
// stage of that file says what is in the image. A folder for each architecture has what the stage
// before would have built. The same input gives the same bytes: one layer, whose files are in the
// order of the Dockerfile, belong to root and have the time of the commit.
//
//	image -to dist/image -time 2026-11-30T08:00:00Z -arg VERSION=0.1.0 amd64=DIR arm64=DIR
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() error {
	args := map[string]string{}
	to := flag.String("to", "dist/image", "folder of the layout")
	at := flag.String("time", "", "time of all files, RFC 3339")
	flag.Func("arg", "NAME=VALUE of an ARG", func(s string) error {
		name, value, _ := strings.Cut(s, "=")
		args[name] = value
		return nil
	})
	flag.Parse()
	when, err := time.Parse(time.RFC3339, *at)
	if err != nil {
		return err
	}
	stage, err := lastStage("deploy/Dockerfile")
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range flag.Args() {
		arch, folder, _ := strings.Cut(arg, "=")
		image, err := build(stage, args, when.UTC(), arch, folder)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	files, err := layout.Write(*to, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": args["VERSION"]}
	if err := files.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	digest, err := index.Digest()
	fmt.Println(digest)
	return err
}

func lastStage(dockerfile string) (*instructions.Stage, error) {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		return nil, err
	}
	last := &stages[len(stages)-1]
	if last.BaseName != "scratch" {
		return nil, fmt.Errorf("%s: the last stage is not from scratch", dockerfile)
	}
	return last, nil
}

// build makes the image of an architecture. An instruction that it does not know is an error.
func build(stage *instructions.Stage, args map[string]string, when time.Time, arch, folder string) (v1.Image, error) {
	config := v1.ConfigFile{Architecture: arch, OS: "linux", Created: v1.Time{Time: when}, RootFS: v1.RootFS{Type: "layers"}}
	c := &config.Config
	c.Labels, c.ExposedPorts = map[string]string{}, map[string]struct{}{}
	files := newTree(when)
	for _, command := range stage.Commands {
		switch i := command.(type) {
		case *instructions.ArgCommand:
			for _, arg := range i.Args {
				if args[arg.Key] == "" {
					return nil, fmt.Errorf("-arg %s is missing", arg.Key)
				}
			}
		case *instructions.CopyCommand:
			if len(i.SourcePaths) != 1 || strings.HasSuffix(i.DestPath, "/") {
				return nil, errors.New(i.String() + ": want one file, and its name in the image")
			}
			from := i.SourcePaths[0]
			if i.From != "" {
				from = filepath.Join(folder, from)
			}
			if err := files.add(from, i.DestPath); err != nil {
				return nil, err
			}
		case *instructions.LabelCommand:
			for _, label := range i.Labels {
				value := os.Expand(strings.Trim(label.Value, `"`), func(name string) string { return args[name] })
				c.Labels[label.Key] = value
			}
		case *instructions.EnvCommand:
			for _, env := range i.Env {
				c.Env = append(c.Env, env.String())
			}
		case *instructions.ExposeCommand:
			for _, port := range i.Ports {
				c.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case *instructions.UserCommand:
			c.User = i.User
		case *instructions.StopSignalCommand:
			c.StopSignal = i.Signal
		case *instructions.EntrypointCommand:
			c.Entrypoint = i.CmdLine
		case *instructions.CmdCommand:
			c.Cmd = i.CmdLine
		case *instructions.HealthCheckCommand:
			h := i.Health
			c.Healthcheck = &v1.HealthConfig{Test: h.Test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod, Retries: h.Retries}
		default:
			return nil, fmt.Errorf("%s is not known here", command.Name())
		}
	}
	layer, err := files.layer()
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &config)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: config.Created, CreatedBy: "deploy/Dockerfile"}})
}

// tree collects the files of the image, with the folders above them, as a tar archive.
type tree struct {
	when time.Time
	out  *bytes.Buffer
	to   *tar.Writer
	has  map[string]bool // folders
}

func newTree(when time.Time) *tree {
	out := &bytes.Buffer{}
	return &tree{when: when, out: out, to: tar.NewWriter(out), has: map[string]bool{}}
}

// add adds a file under its name in the image. What is in a bin is executable.
func (t *tree) add(from, name string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	name = strings.TrimPrefix(path.Clean(name), "/")
	for i, r := range name {
		if folder := name[:i+1]; r == '/' && !t.has[folder] {
			t.has[folder] = true
			err = cmp.Or(err, t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755, ModTime: t.when}))
		}
	}
	mode := int64(0o644)
	if strings.Contains(name, "bin/") {
		mode = 0o755
	}
	err = cmp.Or(err, t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: t.when}))
	if err == nil {
		_, err = t.to.Write(data)
	}
	return err
}

func (t *tree) layer() (v1.Layer, error) {
	if err := t.to.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
