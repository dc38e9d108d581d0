package devenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ctl runs rabbitmqctl on the broker and returns its output.
func (r *Rabbit) Ctl(ctx context.Context, args ...string) (string, error) {
	if err := r.mayChange(); err != nil {
		return "", fmt.Errorf("run rabbitmqctl %s: %w", args[0], err)
	}
	return r.ctl(ctx, args...)
}

// ctl is Ctl also for what disturbs nobody. The cookie is an argument because Debian's rabbitmqctl sets a HOME of its own,
// where the private broker's cookie is not.
func (r *Rabbit) ctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "rabbitmqctl"), append([]string{"-q", "-n", r.node, "--erlang-cookie", r.cookie}, args...)...)
	cmd.Env = r.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run rabbitmqctl %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// SetMaxMessageSize changes the limit for channels opened afterwards, in bytes.
func (r *Rabbit) SetMaxMessageSize(ctx context.Context, bytes int) error {
	_, err := r.Ctl(ctx, "eval", fmt.Sprintf("application:set_env(rabbit, max_message_size, %d).", bytes))
	return err
}

// Alarm sets or clears the memory alarm, and returns when the broker has taken note. While it is on the broker reads
// nothing from connections that publish.
func (r *Rabbit) Alarm(ctx context.Context, on bool) error {
	watermark := "0.4"
	if on {
		watermark = "0"
	}
	if _, err := r.Ctl(ctx, "set_vm_memory_high_watermark", watermark); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		out, err := r.Ctl(ctx, "eval", "rabbit_alarm:get_alarms().")
		return strings.Contains(out, "memory") == on, err
	})
}

// VHost makes a virtual host for one test and returns its address; it is deleted when the test ends. The user guest, or
// that of the address given in the environment, has every right in it.
func (r *Rabbit) VHost(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := r.addVHost(ctx, name); err != nil {
		t.Fatalf("make virtual host: %v", err)
	}
	t.Cleanup(func() {
		if r.server != nil && !r.server.running() {
			return // it goes with the broker's directory
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := r.deleteVHost(ctx, name); err != nil {
			t.Errorf("delete virtual host: %v", err)
		}
	})
	u := *r.url
	u.Path = "/" + name
	return u.String()
}

func (r *Rabbit) addVHost(ctx context.Context, name string) error {
	if r.server == nil {
		return r.manageVHost(ctx, "PUT", name)
	}
	out, err := r.ctl(ctx, "eval", fmt.Sprintf(`{rabbit_vhost:add(<<"%[1]s">>, <<"test">>),
		rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"%[1]s">>, <<".*">>, <<".*">>, <<".*">>, <<"test">>)}.`, name))
	if err == nil && !strings.Contains(out, "{ok,ok}") {
		err = fmt.Errorf("broker answers %s", out)
	}
	return err
}

func (r *Rabbit) deleteVHost(ctx context.Context, name string) error {
	if r.server == nil {
		return r.manageVHost(ctx, "DELETE", name)
	}
	_, err := r.ctl(ctx, "delete_vhost", name)
	return err
}
