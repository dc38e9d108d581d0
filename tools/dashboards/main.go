// Dashboards draws the dashboards of deploy/grafana from what test/dashboards has recorded: real answers of a real Prometheus, in the
// layout of the JSON. It is not Grafana and looks only roughly like it. A module of its own, so that the relay's go.mod lists only
// what the relay needs.
//
//	dashboards ANSWERS DIRECTORY DASHBOARD...
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: dashboards ANSWERS DIRECTORY DASHBOARD...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(answers, directory string, files []string) error {
	var r recording
	if err := read(answers, &r, true); err != nil {
		return err
	}
	for _, file := range files {
		var b board
		if err := read(file, &b, false); err != nil {
			return err
		}
		brought, ok := r.Dashboards[b.UID]
		if !ok {
			return fmt.Errorf("%s has no answers of %s", answers, b.UID)
		}
		for _, p := range b.Panels {
			if len(brought[p.ID]) != len(p.Targets) {
				return fmt.Errorf("%s has %d answers of panel %q of %s, which asks %d", answers, len(brought[p.ID]), p.Title, b.UID, len(p.Targets))
			}
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json") + ".png"
		if err := save(drawBoard(&b, brought, r.Start, r.End), filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

// read decodes a file; strict has a field that is not known here be an error.
func read(file string, into any, strict bool) error {
	text, err := os.ReadFile(file)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		if strict {
			decoder.DisallowUnknownFields()
		}
		err = decoder.Decode(into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}
