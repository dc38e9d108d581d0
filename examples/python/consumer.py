"""Consumes the relay's messages from RabbitMQ with effect exactly once (docs/consuming-python.md)."""
import json, logging, os, time

import pika, psycopg

SERVICE = os.environ.get("SERVICE", "notification-service")
BROKER = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
DATABASE = os.environ.get("DATABASE_URL", "postgresql:///notifications?target_session_attrs=read-write")
EXCHANGE, BINDING = os.environ.get("EXCHANGE", "outbox.events"), os.environ.get("BINDING", "#")  # the relay's
LEVELS = os.environ.get("RETRY_LEVELS", "30s,1m,5m").split(",")
log = logging.getLogger(SERVICE)


class Permanent(Exception):
    """No later attempt can succeed: the message becomes a dead letter at once."""


def handle(db, message, body):
    """The effect of one message, in the open transaction. This function is yours, the rest is protocol."""
    try:
        order = json.loads(body)
        row = (message.message_id, order["order_id"], order["email"])
    except (ValueError, TypeError, KeyError) as error:
        raise Permanent(f"read order: {error!r}") from error
    db.execute("INSERT INTO notifications (message_id, order_id, email) VALUES (%s, %s, %s)", row)


def process(db, message, body):
    """Commits the effect and the row that remembers it together, so that there is one effect: of two
    transactions with the same id the second waits for the first, and finds its row."""
    if not message.message_id:
        raise Permanent("the message has no message_id: a second delivery would not be recognized")
    with db.transaction():
        if db.execute("INSERT INTO processed_messages (service, id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                      (SERVICE, message.message_id)).rowcount == 0:
            return "duplicate"
        handle(db, message, body)
        # After an error that handle has caught COMMIT would roll back and succeed: the effect would be lost.
        if db.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            raise RuntimeError("handle went on after an error of the database")
    return "success"


def give_on(channel, message, body, error):
    """Publishes a failed message to its next retry queue, or as a dead letter. It returns when the broker
    has confirmed that a queue has it, and raises otherwise: only then may the original be acknowledged."""
    headers = message.headers = dict(message.headers or {})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    attempts = int(headers.get("x-retry-count", 0)) + 1
    headers.setdefault("first_failed_at", now)
    failure = "permanent" if isinstance(error, Permanent) else "transient"
    if attempts <= len(LEVELS) and failure == "transient":
        headers["x-retry-count"] = attempts
        channel.basic_publish("", f"{SERVICE}.retry.{LEVELS[attempts - 1]}", body, message, mandatory=True)
        return "retry"
    headers.update(failure_reason=str(error)[:1000], failure_class=failure, attempts=attempts, failed_at=now,
                   original_destination=SERVICE, consumer_service=SERVICE)
    channel.basic_publish("outbox.dlx", SERVICE, body, message, mandatory=True)
    return "dlq"


def unavailable(db, error):
    """Is it the database that cannot be used now, and not the message that is at fault?"""
    state = getattr(error, "sqlstate", None) or ""
    return db.closed or state[:2] in ("08", "53") or state in ("57P01", "57P02", "57P03", "25006")


def declare(channel):
    """Makes exchanges and queues, and raises when the broker has them otherwise."""
    quorum = {"x-queue-type": "quorum"}
    safe = quorum | {"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
                     "x-dead-letter-routing-key": SERVICE}
    queues = {f"{SERVICE}.dlq": quorum, SERVICE: safe | {
        "x-single-active-consumer": True, "x-delivery-limit": 20, "x-dead-letter-exchange": "outbox.dlx"}}
    for level in LEVELS:
        wait = int(level[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000}[level[-1]]
        queues[f"{SERVICE}.retry.{level}"] = safe | {
            "x-message-ttl": wait, "x-dead-letter-exchange": f"{SERVICE}.return"}
    for exchange in "outbox.dlx", f"{SERVICE}.return":
        channel.exchange_declare(exchange, "direct", durable=True)
    for name, arguments in queues.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_bind(f"{SERVICE}.dlq", "outbox.dlx", SERVICE)
    channel.queue_bind(SERVICE, f"{SERVICE}.return", SERVICE)
    channel.queue_bind(SERVICE, EXCHANGE, BINDING)


def consume(broker, channel):
    db = psycopg.connect(DATABASE, autocommit=True)  # process begins the transactions
    channel.confirm_delivery()  # basic_publish waits for the confirm
    channel.basic_qos(prefetch_count=1)
    declare(channel)
    for delivery, message, body in channel.consume(SERVICE):
        outcome = None
        while outcome is None:
            try:
                if db.closed:
                    db = psycopg.connect(DATABASE, autocommit=True)
                outcome = process(db, message, body)
            except Exception as error:
                log.warning("message %s: %s", message.message_id, error)
                if unavailable(db, error):  # no attempt is spent; the next try finds out whether a COMMIT arrived
                    db.close()
                    broker.sleep(1)  # which answers heartbeats
                else:
                    outcome = give_on(channel, message, body, error)
        channel.basic_ack(delivery.delivery_tag)
        log.info("message %s: %s", message.message_id, outcome)


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pika").setLevel("CRITICAL")
    while True:
        try:
            with pika.BlockingConnection(pika.URLParameters(BROKER)) as broker:
                consume(broker, broker.channel())
        except (pika.exceptions.AMQPError, psycopg.OperationalError, OSError) as error:
            log.warning("connect again: %r", error)  # what was not acknowledged is delivered again
            time.sleep(1)
