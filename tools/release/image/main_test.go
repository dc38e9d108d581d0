package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The last stage of a Dockerfile becomes an image with its files, folders, modes and labels. What
// cannot be made without Docker is an error.
func TestBuild(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "relay"), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	const copied = "COPY --from=build /relay /usr/bin/relay\nCOPY --from=build /relay /etc/relay\n"
	for _, c := range []struct {
		name, stage string
		files       []string
		fault       string
	}{
		{"files", copied, []string{"usr/ 755", "usr/bin/ 755", "usr/bin/relay 755", "etc/ 755", "etc/relay 644"}, ""},
		{"label", "ARG VERSION\nLABEL of=\"$VERSION\"\n", nil, ""},
		{"no such file", "COPY --from=build /other /other\n", nil, "no such file"},
		{"folder", "COPY --from=build /relay /usr/\n", nil, "want one file"},
		{"argument", "ARG COMMIT\n", nil, "-arg COMMIT is missing"},
		{"command", "RUN true\n", nil, "RUN is not known here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dockerfile := filepath.Join(t.TempDir(), "Dockerfile")
			if err := os.WriteFile(dockerfile, []byte("FROM golang AS build\nFROM scratch\n"+c.stage), 0o600); err != nil {
				t.Fatal(err)
			}
			stage, err := lastStage(dockerfile)
			if err != nil {
				t.Fatal(err)
			}
			image, err := build(stage, map[string]string{"VERSION": "0.1.0"}, time.Unix(0, 0), "amd64", folder)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("the fault is %v, want %s", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Contains(c.stage, "LABEL"); want != (config.Config.Labels["of"] == "0.1.0") {
				t.Errorf("the labels are %q", config.Config.Labels)
			}
			layers, err := image.Layers()
			if err != nil || len(layers) != 1 {
				t.Fatalf("%d layers, %v", len(layers), err)
			}
			content, err := layers[0].Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			var files []string
			for archive := tar.NewReader(content); ; {
				file, err := archive.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, fmt.Sprintf("%s %o", file.Name, file.Mode))
			}
			if !slices.Equal(files, c.files) {
				t.Errorf("the files are %q, want %q", files, c.files)
			}
		})
	}
}
