// Virtual hosts by the HTTP API of the management plugin: on the shared broker, where rabbitmqctl
// would cost a second each time, and on a broker that is not ours, where it does not reach.

package rabbitserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// GivenAPI is where the plugin of a given broker answers: CDC_RELAY_TEST_RABBITMQ_API, or else port
// 15672 of the same host.
func GivenAPI(broker *url.URL) string {
	if base := os.Getenv("CDC_RELAY_TEST_RABBITMQ_API"); base != "" {
		return base
	}
	return "http://" + broker.Hostname() + ":15672"
}

// managementAnswers reports whether the plugin answers, if it was asked for.
func (r *Rabbit) managementAnswers(ctx context.Context) bool {
	return r.Api == "" || r.callAPI(ctx, http.MethodGet, "/api/whoami", "") == nil
}

func (r *Rabbit) manageVHost(ctx context.Context, method, name string) error {
	if err := r.callAPI(ctx, method, "/api/vhosts/"+name, ""); err != nil || method == http.MethodDelete {
		return err
	}
	u := *r.Url
	u.Path = "/" + name
	return r.Permit(ctx, u.String(), ".*", ".*", ".*")
}

func (r *Rabbit) callAPI(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, r.Api+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask management API: %w", err)
	}
	password, _ := r.Url.User.Password()
	req.SetBasicAuth(r.Url.User.Username(), password)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask management API: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return errors.Join(fmt.Errorf("ask management API: %s %s: %s: %s", method, path, resp.Status, text), err)
	}
	return nil
}

// Permit gives the user of an address its rights in the virtual host of that address, in place of
// those it had: regular expressions of names. A channel that has written to an exchange may go on
// for a while: break its connection.
func (r *Rabbit) Permit(ctx context.Context, address, configure, write, read string) error {
	path, err := rightsOf(address)
	if err != nil {
		return err
	}
	return r.putAPI(ctx, "permissions/"+path, map[string]string{"configure": configure, "write": write, "read": read})
}

// PermitTopics is the same of the routing keys of a topic exchange.
func (r *Rabbit) PermitTopics(ctx context.Context, address, exchange, write, read string) error {
	path, err := rightsOf(address)
	if err != nil {
		return err
	}
	return r.putAPI(ctx, "topic-permissions/"+path, map[string]string{"exchange": exchange, "write": write, "read": read})
}

// LimitUser limits the user of an address: max-connections or max-channels. It ends with the user.
func (r *Rabbit) LimitUser(ctx context.Context, address, name string, n int) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	return r.onAPI(ctx, http.MethodPut, "user-limits/"+url.PathEscape(u.User.Username())+"/"+name, fmt.Sprintf(`{"value": %d}`, n))
}

// rightsOf is where the API has the rights of an address.
func rightsOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read address: %w", err)
	}
	return url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "/" + url.PathEscape(u.User.Username()), nil
}

func (r *Rabbit) putAPI(ctx context.Context, path string, body map[string]string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return r.onAPI(ctx, http.MethodPut, path, string(text))
}

func (r *Rabbit) onAPI(ctx context.Context, method, path, body string) error {
	if r.Api == "" {
		return errNoAPI
	}
	return r.callAPI(ctx, method, "/api/"+path, body)
}

var errNoAPI = errors.New("the broker has no management plugin")
