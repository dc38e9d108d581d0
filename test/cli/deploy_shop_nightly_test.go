//go:build nightly

// This file runs the services of deploy/compose.yaml's profile shop on the servers of
// TestComposeRelaysDeliver, with the environment that compose gives them.
package cli

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// shopDelivers places two orders over HTTP: one has its notification, the other, of an item that
// nobody knows, is a dead letter. Roles and users have only the rights of shop.sql and of the
// broker's definitions.
func (c *composition) shopDelivers() {
	t := c.t
	t.Helper()
	for range 2 { // it runs at every start
		cmd := exec.CommandContext(await.Context(t), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", c.db, "-f", "../../deploy/compose/shop.sql")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("shop.sql: %v: %s", err, out)
		}
	}
	// Its queue gets what comes once it is bound.
	c.service("notification-service", `cdc_relay_inbox_broker_up{service="notification-service"} 1`)
	orders := c.service("order-service", "go_goroutines")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for id, item := range map[string]string{"0190163d-8694-739b-aea5-966c26f8ad90": "lamp", "0190163d-8694-739b-aea5-966c26f8ad91": "umbrella"} {
		body := fmt.Sprintf(`{"id": %q, "customer": "me", "item": %q}`, id, item)
		resp, err := client.Post(orders+"/orders", "application/json", strings.NewReader(body))
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("the order of a %s: %s", item, resp.Status)
		}
	}
	var sent []string
	await.Until(t, "a notification", func() bool {
		must(t, pgserver.OnConn(await.Context(t), c.pg.URL("shop_notifications"), func(conn *pgx.Conn) error {
			rows, err := conn.Query(await.Context(t), "SELECT message FROM notifications")
			if err == nil {
				sent, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		}))
		return slices.Equal(sent, []string{"Thank you for ordering A Lamp"})
	}, func() any { return sent })
	eventually(t, c.arrivedIn("notification-service.dlq"))
}

// service starts a service, and returns its address once its metrics say that it is ready.
func (c *composition) service(name, ready string) string {
	t := c.t
	t.Helper()
	var composed struct {
		Services map[string]struct {
			Environment map[string]string
		}
	}
	must(t, yaml.Unmarshal([]byte(document(t, "deploy/compose.yaml")), &composed))
	binary, err := runner.Program(await.Context(t), "examples/shop/"+name)
	must(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", processes.FreePort(t))
	cmd := exec.Command(binary)
	cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), "LISTEN="+address)
	if len(composed.Services[name].Environment) == 0 {
		t.Fatalf("compose.yaml has no environment of %s", name)
	}
	for variable, value := range composed.Services[name].Environment {
		cmd.Env = append(cmd.Env, variable+"="+c.as(value))
	}
	proc, err := processes.Start(name, cmd, filepath.Join(t.TempDir(), "log"))
	must(t, err)
	t.Cleanup(func() {
		must(t, proc.Kill())
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, processes.Tail(processes.ReadLog(proc.LogPath)))
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await.Until(t, name+" is ready", func() bool {
		resp, err := client.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), "\n"+ready)
	}, func() any { return processes.ReadLog(proc.LogPath) })
	return "http://" + address
}
