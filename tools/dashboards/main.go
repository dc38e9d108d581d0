// Dashboards draws the dashboards of deploy/grafana from what test/dashboards has recorded: real answers of a real Prometheus, in the
// layout of the JSON. It is not Grafana and looks only roughly like it. A module of its own, so that the relay's go.mod lists only
// what the relay needs.
//
//	dashboards ANSWERS DIRECTORY DASHBOARD...
package main

import (
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
	if err := read(answers, &r); err != nil {
		return err
	}
	for _, file := range files {
		var b board
		if err := read(file, &b); err != nil {
			return err
		}
		brought, ok := r.Dashboards[b.UID]
		if !ok {
			return fmt.Errorf("%s has no answers of %s", answers, b.UID)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json") + ".png"
		if err := save(drawBoard(&b, brought, r.Start, r.End), filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

func read(file string, into any) error {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}
