// Users, rights and virtual hosts of a test's own, by the HTTP API of the management plugin: they
// disturb nobody else on the broker, so the shared one is good enough.

package rabbitserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

var errNoAPI = errors.New("the broker has no management plugin")

// User makes a user for one test, without rights and with these tags, and returns vhost's address
// with its login. The user is deleted when the test ends.
func (r *Rabbit) User(t testing.TB, vhost string, tags ...string) string {
	t.Helper()
	u, err := url.Parse(vhost)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("u"+strings.ToLower(rand.Text()[:12]), rand.Text())
	if err := r.PutUser(t.Context(), u.String(), tags...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.DeleteUser(context.Background(), u.String()); err != nil {
			t.Error(err)
		}
	})
	return u.String()
}

// PutUser makes the user of an address, with the password that stands there.
func (r *Rabbit) PutUser(ctx context.Context, address string, tags ...string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	password, _ := u.User.Password()
	return r.putAPI(ctx, "users/"+url.PathEscape(u.User.Username()), map[string]string{"password": password, "tags": strings.Join(tags, ",")})
}

// DeleteUser deletes the user of an address. The broker closes the user's connections by a 320, as
// when it stops.
func (r *Rabbit) DeleteUser(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	return r.onAPI(ctx, http.MethodDelete, "users/"+url.PathEscape(u.User.Username()), "")
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

// rightsOf is where the API has the rights of an address.
func rightsOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read address: %w", err)
	}
	return url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "/" + url.PathEscape(u.User.Username()), nil
}

// DropVHost deletes the virtual host of an address, with its connections; RestoreVHost makes it
// again, empty.
func (r *Rabbit) DropVHost(ctx context.Context, vhost string) error {
	u, err := url.Parse(vhost)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	return r.DeleteVHost(ctx, strings.TrimPrefix(u.Path, "/"))
}

// RestoreVHost makes the virtual host of an address.
func (r *Rabbit) RestoreVHost(ctx context.Context, vhost string) error {
	u, err := url.Parse(vhost)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	return r.AddVHost(ctx, strings.TrimPrefix(u.Path, "/"))
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

// Eval evaluates an Erlang expression in the broker, which ends with a full stop, and returns the
// value as Erlang writes it. It costs milliseconds, and rabbitmqctl a second: that starts an Erlang
// VM for each call.
func (r *Rabbit) Eval(ctx context.Context, expression string) (string, error) {
	if err := r.mayChange(); err != nil {
		return "", fmt.Errorf("evaluate in RabbitMQ: %w", err)
	}
	program, err := exec.LookPath("erl_call")
	if err != nil {
		return r.ctl(ctx, "eval", expression)
	}
	cmd := exec.CommandContext(ctx, program, "-address", fmt.Sprintf("localhost:%d", r.ports.dist), "-c", r.cookie, "-r", "-e")
	cmd.Env, cmd.Stdin = r.env(), strings.NewReader(expression+"\n")
	out, err := cmd.CombinedOutput()
	value, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "{ok, ")
	if err != nil || !ok {
		return "", fmt.Errorf("evaluate in RabbitMQ: %w: %s", errors.Join(err, errNotEvaluated), out)
	}
	return strings.TrimSuffix(value, "}"), nil
}

var errNotEvaluated = errors.New("erl_call returned no value")
