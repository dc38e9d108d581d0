// What rabbitmqctl changes in a running broker.

package rabbitserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// Ctl runs rabbitmqctl on the broker and returns its output.
func (r *Rabbit) Ctl(ctx context.Context, args ...string) (string, error) {
	if err := r.mayChange(); err != nil {
		return "", fmt.Errorf("run rabbitmqctl %s: %w", args[0], err)
	}
	return r.ctl(ctx, args...)
}

// ctl is Ctl also for what disturbs nobody. The cookie is an argument because Debian's rabbitmqctl
// sets a HOME of its own, where the private broker's cookie is not.
func (r *Rabbit) ctl(ctx context.Context, args ...string) (string, error) {
	cmd := r.command(ctx, r.script("rabbitmqctl"), append([]string{"-q", "-n", r.node, "--erlang-cookie", r.cookie}, args...)...)
	cmd.Env = r.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run rabbitmqctl %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// SetMaxMessageSize changes the limit for channels opened afterwards, in bytes. RabbitMQ 4 has its
// own copy of the setting.
func (r *Rabbit) SetMaxMessageSize(ctx context.Context, bytes int) error {
	_, err := r.Eval(ctx, fmt.Sprintf("application:set_env(rabbit, max_message_size, %[1]d), persistent_term:put(max_message_size, %[1]d).", bytes))
	return err
}

// Alarm sets or clears the memory alarm, and returns when the broker has taken note. While it is on
// the broker reads nothing from connections that publish.
func (r *Rabbit) Alarm(ctx context.Context, on bool) error {
	watermark := "0.4"
	if on {
		watermark = "0"
	}
	if _, err := r.Eval(ctx, "vm_memory_monitor:set_vm_memory_high_watermark("+watermark+")."); err != nil {
		return err
	}
	return processes.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		out, err := r.Eval(ctx, "rabbit_alarm:get_alarms().")
		return strings.Contains(out, "memory") == on, err
	})
}

// VHost makes a virtual host for one test and returns its address; it is deleted when the test
// ends. The user guest, or that of the address given in the environment, has every right in it.
func (r *Rabbit) VHost(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := r.AddVHost(ctx, name); err != nil {
		t.Fatalf("make virtual host: %v", err)
	}
	t.Cleanup(func() {
		if r.Server != nil && !r.Server.Running() {
			return // it goes with the broker's directory
		}
		ctx := context.Background()
		if err := r.DeleteVHost(ctx, name); err != nil {
			t.Errorf("delete virtual host: %v", err)
		}
	})
	u := *r.Url
	u.Path = "/" + name
	return u.String()
}

// AddVHost makes a virtual host in which the user of the tests may do everything.
func (r *Rabbit) AddVHost(ctx context.Context, name string) error {
	if r.Api != "" {
		return r.manageVHost(ctx, "PUT", name)
	}
	out, err := r.eval(ctx, fmt.Sprintf(`{rabbit_vhost:add(<<"%[1]s">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%[1]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)}.`, name))
	if err == nil && strings.ReplaceAll(out, " ", "") != "{ok,ok}" {
		err = fmt.Errorf("broker answers %s", out)
	}
	return err
}

// DeleteVHost removes a virtual host with all that is in it.
func (r *Rabbit) DeleteVHost(ctx context.Context, name string) error {
	if r.Api != "" {
		return r.manageVHost(ctx, "DELETE", name)
	}
	_, err := r.eval(ctx, fmt.Sprintf(`ok = rabbit_vhost:delete(<<"%s">>, <<"test">>).`, name))
	return err
}

// AllowWrite lets the user of a virtual host's address write there only to exchanges whose names
// match a regular expression (".*": to all; the default exchange is called amq.default). A channel
// that has written to an exchange may go on for a while: break its connection.
func (r *Rabbit) AllowWrite(ctx context.Context, vhost, exchanges string) error {
	return r.Permit(ctx, vhost, ".*", exchanges, ".*")
}
