package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
)

const askRelay = 3 * time.Second

func newStatus(g *global) *cobra.Command {
	var admin string
	var asJSON, watching bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What the relay is doing",
		Long: `Asks the running relay. When it does not answer, shows what the database knows and says so: exit 0
when somebody holds the slot, else 1.

With --watch it goes on asking until it is interrupted, and exits 0 then. On a terminal it
redraws, with lines of how far behind the slot has been. Elsewhere it prints a line each time,
with --json an object. A relay that goes away is shown as that, and again when it is back.`,
		Example: `  cdc-relay status
  cdc-relay status --watch
  cdc-relay status --watch --every 10s >> status.log
  cdc-relay status --admin 10.0.0.7:9464 --json | jq .slot.lag_bytes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			if admin == "" {
				admin = c.Admin.Listen
			}
			switch {
			case watching && every < shortestEvery:
				return usage("--every", fmt.Errorf("is %s, want at least %s", every, shortestEvery))
			case watching:
				return runWatch(cmd.Context(), cmd.OutOrStdout(), c, g, admin, every, asJSON)
			case cmd.Flags().Changed("every"):
				return usage("--every", errors.New("has no effect without --watch"))
			}
			status, err := fetchStatus(cmd.Context(), c, admin)
			if err == nil {
				return showStatus(cmd.OutOrStdout(), status, asJSON)
			}
			var answered *relayAnswer
			if errors.As(err, &answered) {
				return err
			}
			return showDatabase(cmd.Context(), cmd.OutOrStdout(), c, g, asJSON, err)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "address of the relay (default admin.listen)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "go on asking until interrupted")
	cmd.Flags().DurationVar(&every, "every", time.Second, "with --watch: the interval")
	return cmd
}

const shortestEvery = 100 * time.Millisecond

// relayAnswer is an answer of the relay that is not a status: it is there, so the database is not asked instead.
type relayAnswer struct{ text string }

func (e *relayAnswer) Error() string { return e.text }

func fetchStatus(ctx context.Context, c *config.Config, admin string) (*ops.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askRelay)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/status", nil)
	if err != nil {
		return nil, &relayAnswer{fmt.Sprintf("--admin %s: %v", admin, err)}
	}
	if err := authorize(req, c); err != nil {
		return nil, &relayAnswer{err.Error()}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &relayAnswer{fmt.Sprintf("the relay at %s answers %s: correct --admin, admin.read_token or admin.token", admin, resp.Status)}
	}
	var status ops.Status
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&status); err != nil {
		return nil, &relayAnswer{fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)}
	}
	return &status, nil
}

// reachable turns an address to listen on into one to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func authorize(req *http.Request, c *config.Config) error {
	for _, secret := range []config.Secret{c.Admin.ReadToken, c.Admin.Token} {
		if secret.IsSet() {
			token, err := secret.Read()
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		}
	}
	return nil
}

func showStatus(w io.Writer, s *ops.Status, asJSON bool) error {
	if asJSON {
		return printJSON(w, s)
	}
	return writeStatus(w, s, colourful(w))
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func colourful(w io.Writer) bool { return onTerminal(w) && os.Getenv("NO_COLOR") == "" }

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
