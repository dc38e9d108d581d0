//go:build testall

package cli

import (
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

const importedServer = `debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.plugin.name=pgoutput
debezium.source.database.hostname=@HOST@
debezium.source.database.port=@PORT@
debezium.source.database.user=@USER@
debezium.source.database.dbname=@DATABASE@
debezium.source.topic.prefix=orders
debezium.source.slot.name=@SLOT@
debezium.source.publication.name=@SLOT@
debezium.source.table.include.list=public.outbox
debezium.source.offset.storage.file.filename=data/offsets.dat
debezium.source.offset.flush.interval.ms=0
debezium.format.key=simplestring
debezium.format.value=simplestring
debezium.format.header.schemas.enable=false
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
debezium.transforms.outbox.table.field.event.key=aggregate_id
debezium.transforms.outbox.route.by.field=aggregate_type
debezium.transforms.outbox.route.topic.replacement=$${routedByValue}.events
debezium.sink.type=rabbitmq
debezium.sink.rabbitmq.connection.host=nowhere.invalid
debezium.sink.rabbitmq.exchange=outbox.events
debezium.sink.rabbitmq.ackTimeout=10000
`

// A Debezium Server, imported from its properties and the environment over them.
func TestImportedServer(t *testing.T) {
	t.Parallel()
	r := debeziumRig(t)
	b := &brokered{rig: r, broker: servers.SharedRabbitMQ(t)}
	b.vhost = b.broker.VHost(t)
	var err error
	b.consumer, err = consumers.StartConsumer(await.Context(t), consumers.ConsumerOptions{URL: b.vhost})
	must(t, err)
	take := b.queue(t)
	broker, err := url.Parse(b.vhost)
	must(t, err)
	password, _ := broker.User.Password()
	env := r.fillIn("server.env", `DEBEZIUM_SINK_RABBITMQ_CONNECTION_HOST=@MQ@
DEBEZIUM_SINK_RABBITMQ_CONNECTION_PORT=@MQPORT@
DEBEZIUM_SINK_RABBITMQ_CONNECTION_USERNAME=@MQUSER@
DEBEZIUM_SINK_RABBITMQ_CONNECTION_PASSWORD=@MQPASSWORD@
DEBEZIUM_SINK_RABBITMQ_CONNECTION_VIRTUAL_HOST=@VHOST@
DEBEZIUM_SINK_RABBITMQ_ROUTINGKEY_SOURCE=topic
`, "MQ", broker.Hostname(), "MQPORT", broker.Port(), "MQUSER", broker.User.Username(), "MQPASSWORD", password, "VHOST", strings.TrimPrefix(broker.Path, "/"))
	relay := r.goOn(r.importTo(env, r.fillIn("application.properties", importedServer)), func() {})

	r.exec(`INSERT INTO outbox VALUES ('11111111-1111-1111-1111-111111111111', 'order', '7', 'created', 'eu', '{"total": 12.50}', now())`)
	var d *amqp.Delivery
	eventually(t, func() string {
		if d = take(); d == nil {
			return "no message"
		}
		return ""
	})
	if d.Exchange != "outbox.events" || d.RoutingKey != "order.events" || string(d.Body) != `{"total": 12.50}` || d.DeliveryMode != amqp.Persistent ||
		len(d.Headers) != 1 || d.Headers["id"] != `"11111111-1111-1111-1111-111111111111"` {
		t.Errorf("the message is %+v", d)
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
