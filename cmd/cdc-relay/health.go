package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// newHealth is `health`: a probe for images that have no shell and no curl.
func newHealth(g *global) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the running relay whether it is healthy: exit 0, or 1 with the reason",
		Long: `Asks /healthz of the running relay, as the health check of a container does. Exit 0 while it runs
or waits for its servers, 1 when a loop is stuck or nobody answers. What the relay is doing is
told by status.`,
		Example: `  cdc-relay health
  cdc-relay health --admin 127.0.0.1:9464`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if admin == "" {
				c, err := g.load()
				if err != nil {
					return err
				}
				admin = c.Admin.Listen
			}
			if why := askHealth(cmd.Context(), admin); why != "" {
				return &outbox.Stop{Code: outbox.ExitFailure, Reason: "unhealthy", What: why}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "healthy")
			return err
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "", "address of the relay (default admin.listen)")
	return cmd
}

// askHealth is "" or why the relay at an address is not healthy.
func askHealth(ctx context.Context, admin string) string {
	ctx, cancel := context.WithTimeout(ctx, askRelay)
	defer cancel()
	base := admin
	if !strings.Contains(base, "://") {
		base = "http://" + reachable(base)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return fmt.Sprintf("--admin %s: %v", admin, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Sprintf("no relay answers: %v", err)
	}
	defer resp.Body.Close()
	var h ops.Health
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&h); err != nil {
		return fmt.Sprintf("the program at %s is not a cdc-relay: %v", admin, err)
	}
	if !h.Healthy || resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s: %s", resp.Status, strings.Join(h.Stuck, "; "))
	}
	return ""
}
