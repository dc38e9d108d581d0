package servers

import (
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/rabbitserver"
)

// A test cannot do to the shared broker what the other tests would feel, whoever started it.
func TestSharedBrokerIsNotReconfigured(t *testing.T) {
	ctx := await.Context(t)
	r := SharedRabbitMQ(t)
	r.VHost(t)
	_, ctl := r.Ctl(ctx, "list_users")
	for what, err := range map[string]error{
		"Ctl": ctl, "Alarm": r.Alarm(ctx, true), "SetMaxMessageSize": r.SetMaxMessageSize(ctx, 1000), "Stop": r.Stop(ctx), "Kill": r.Kill(),
	} {
		if err == nil {
			t.Errorf("%s works on the shared broker", what)
		}
	}
}

func TestMissingServerNamesTheCommand(t *testing.T) {
	_, err := pgserver.Start(await.Context(t), pgserver.Options{BinDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, err = kafkaserver.Start(await.Context(t), kafkaserver.Options{})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	_, err = StartPrometheus(await.Context(t), PrometheusOptions{})
	if err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Fatalf("error is %v", err)
	}
	if _, err := os.Stat("/usr/lib/rabbitmq/bin"); err == nil {
		_, err = rabbitserver.Start(await.Context(t), rabbitserver.Options{})
		if err == nil || !strings.Contains(err.Error(), "make deps") {
			t.Fatalf("error is %v", err)
		}
	}
}

func onChannel(t testing.TB, url string, do func(*amqp.Channel)) {
	t.Helper()
	conn, err := amqp.Dial(url)
	await.Must(t, err)
	defer conn.CloseDeadline(time.Now().Add(5 * time.Second))
	ch, err := conn.Channel()
	await.Must(t, err)
	do(ch)
}
