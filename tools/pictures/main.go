// Command pictures draws docs/img: panels of the dashboards in deploy/grafana, and the screen of
// `status --watch`, of a relay between a real PostgreSQL and a real RabbitMQ. Under load one event
// is poison, the broker goes away for a while, and an exchange is deleted by mistake. The queries
// are those of the dashboards' files, and a real Prometheus answers them.
//
// It takes six minutes. Exit codes: 0 all pictures are written, 1 they are not.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// a second signal ends this process at once; its watcher ends the servers
	context.AfterFunc(ctx, stop)
	if err := draw(ctx, console.New(os.Stdout), pages.Root(), filepath.Join(pages.Root(), folder), fullLength); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// folder is where the pictures are, from the root of the repository.
const folder = "docs/img"

const (
	reliability = "outbox-reliability.json"
	slots       = "replication-slots.json"
)

// picture is a file of panels.
type picture struct {
	file, title string
	columns     int
	panels      []shown
}

// shown is a panel of a dashboard, by its title there.
type shown struct {
	board, title string
	logarithmic  bool // milliseconds and minutes in one picture
	wide         bool // over all columns
}

var pictures = []picture{
	{file: "outage.svg", title: "The dashboards through an outage of the broker", columns: 2, panels: []shown{
		{board: reliability, title: "Events by outcome"},
		{board: reliability, title: "Latency, commit to confirm", logarithmic: true},
		{board: reliability, title: "Backlog"},
		{board: slots, title: "Lag, time"},
		{board: slots, title: "Lag, WAL"},
		{board: slots, title: "WAL kept, and how much may be"},
		{board: reliability, title: "Deferred"},
		{board: reliability, title: "Open dead letters"},
		{board: reliability, title: "State", wide: true},
	}},
	{file: "wal.svg", title: "WAL that the slot keeps", columns: 1, panels: []shown{{board: slots, title: "WAL kept, and how much may be"}}},
	{file: "deferred.svg", title: "Events that wait in the retry table", columns: 1, panels: []shown{{board: reliability, title: "Deferred"}}},
}

// watchFile is the screen of `status --watch`.
const watchFile = "watch.svg"

// draw plays the story, asks Prometheus for the panels, and writes the pictures to a folder. root
// is that of the repository.
func draw(ctx context.Context, out *console.Console, root, to string, times length) (err error) {
	panels := map[shown]*panel{}
	for _, p := range pictures {
		for _, s := range p.panels {
			if panels[s], err = find(root, s); err != nil {
				return err
			}
		}
	}
	play := &story{Console: out, length: times}
	defer func() {
		if closing := play.close(); err == nil {
			err = closing
		}
	}()
	if err := play.run(ctx); err != nil {
		return err
	}
	for _, s := range panels {
		if err := s.ask(ctx, play.prometheus, play.began, play.ended); err != nil {
			return err
		}
	}
	files := map[string]string{watchFile: terminalSVG("cdc-relay status --watch", play.watched)}
	for _, p := range pictures {
		files[p.file] = p.svg(panels, play)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write picture: %w", err)
		}
		out.Say("%s: %s", name, console.Size(int64(len(text))))
	}
	return nil
}
