// Users, rights and virtual hosts of a test's own, by the HTTP API of the management plugin: they
// disturb nobody else on the broker, so the shared one is good enough.

package rabbitserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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

// Eval evaluates an Erlang expression in the broker, which ends with a full stop, and returns the
// value as Erlang writes it.
func (r *Rabbit) Eval(ctx context.Context, expression string) (string, error) {
	if err := r.mayChange(); err != nil {
		return "", fmt.Errorf("evaluate in RabbitMQ: %w", err)
	}
	return r.eval(ctx, expression)
}

// eval is Eval also for what disturbs nobody. It costs milliseconds, and rabbitmqctl a second: that
// starts an Erlang VM for each call. A busy machine may be too slow for the way erl_call connects:
// then it is run again.
func (r *Rabbit) eval(ctx context.Context, expression string) (string, error) {
	if !r.has("erl_call") {
		return r.ctl(ctx, "eval", expression)
	}
	for tries := 1; ; tries++ {
		cmd := r.command(ctx, "erl_call", "-address", fmt.Sprintf("localhost:%d", r.ports.dist), "-c", r.cookie, "-r", "-e")
		cmd.Env, cmd.Stdin = r.env(), strings.NewReader(expression+"\n")
		out, err := cmd.CombinedOutput()
		value, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "{ok, ")
		switch {
		case err == nil && ok:
			return strings.TrimSuffix(value, "}"), nil
		case tries == evalTries || !bytes.Contains(out, []byte("failed to connect to node")):
			return "", fmt.Errorf("evaluate in RabbitMQ: %w: %s", errors.Join(err, errNotEvaluated), out)
		}
	}
}

// evalTries is how often erl_call is run for an evaluation that it could not begin.
const evalTries = 20

var errNotEvaluated = errors.New("erl_call returned no value")
