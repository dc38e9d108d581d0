// What the examples of a package connect to.

package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
)

// Example prepares something for the examples of a package, before its tests; undo takes it away.
type Example func(ctx context.Context) (undo func(context.Context) error, err error)

// ExampleDatabase is an empty database of the shared server. Examples find it by DATABASE_URL.
func ExampleDatabase(ctx context.Context) (undo func(context.Context) error, err error) {
	server, err := sharedPostgres()
	if err != nil {
		return nil, err
	}
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := server.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return server.DropDatabase(ctx, name) },
		os.Setenv("DATABASE_URL", server.URL(name))
}

// prepared runs tests with what their examples need.
func prepared(examples []Example, run func() int) (code int, err error) {
	if len(examples) == 0 {
		return run(), nil
	}
	undo, err := examples[0](context.Background())
	if err != nil {
		return 1, err
	}
	code, err = prepared(examples[1:], run)
	return code, errors.Join(err, undo(context.Background()))
}

// ExampleVHost is an empty virtual host of the shared broker. Examples find it by AMQP_URL.
func ExampleVHost(ctx context.Context) (undo func(context.Context) error, err error) {
	broker, err := sharedRabbitMQ()
	if err != nil {
		return nil, err
	}
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := broker.AddVHost(ctx, name); err != nil {
		return nil, err
	}
	u := *broker.Url
	u.Path = "/" + name
	return func(ctx context.Context) error { return broker.DeleteVHost(ctx, name) }, os.Setenv("AMQP_URL", u.String())
}

// ExampleTopic is an empty topic of the shared cluster. Examples find it by KAFKA_BROKERS, one or
// more addresses, and KAFKA_TOPIC.
func ExampleTopic(ctx context.Context) (undo func(context.Context) error, err error) {
	cluster, err := sharedKafka()
	if err != nil {
		return nil, err
	}
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := cluster.CreateTopic(ctx, name, 1, 1, nil); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return cluster.DeleteTopic(ctx, name) },
		errors.Join(os.Setenv("KAFKA_BROKERS", strings.Join(cluster.Brokers(), ",")), os.Setenv("KAFKA_TOPIC", name))
}
