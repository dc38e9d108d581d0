"""Consumes the relay's messages from RabbitMQ with effect exactly once (docs/consuming.md, under Python)."""
import base64, decimal, hashlib, json, logging, os, re, signal, struct, sys, time
import pika, psycopg

SERVICE = os.environ.get("SERVICE", "notification-service")
BROKER = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
DATABASE = os.environ.get("DATABASE_URL", "postgresql:///notifications?connect_timeout=10")
EXCHANGE, BINDING = os.environ.get("EXCHANGE", "outbox.events"), os.environ.get("BINDING", "#")  # the relay's
LEVELS = os.environ.get("RETRY_LEVELS", "30s,1m,5m").split(",")
# Headers that the broker writes or obeys: in a message that is published again they would be wrong.
BROKERS = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count")
# Headers of a delivery, or of a failure: they are not the event's.
PASSING = BROKERS + ("__debezium.", "x-opt-", "x-shovelled")
CHANGING = """timestamp_in_ms cdc_position cdc_replay traceparent tracestate x-routed-by x-stream-offset x-retry-count
    attempts failure_reason failure_class first_failed_at failed_at original_destination consumer_service""".split()
# Of a CloudEvent: what the names of headers begin with, and the attributes that are no extensions.
PREFIXES = ("ce_", "cloudEvents:")
ATTRIBUTES = """specversion id source type subject time datacontenttype dataschema traceparent partitionkey
    sequence""".split()
# The server ends the transaction of a process that is frozen or has no power: until then its record is locked.
RECORD = """INSERT INTO processed_messages (service, id, content_hash) SELECT %s, %s, %s
    FROM set_config('idle_in_transaction_session_timeout', '60s', true) ON CONFLICT DO NOTHING"""
# What another consumer has recorded may have no hash of our version.
OTHER = """SELECT FROM processed_messages WHERE service = %s AND id = %s AND
    substr(content_hash, 1, 1) = substr(%s::bytea, 1, 1) AND content_hash <> %s"""


class Permanent(Exception): """No later attempt can succeed: the message becomes a dead letter at once."""
class Unavailable(Exception): """The database cannot record messages now: they wait, and none of them is at fault."""


def handle(db, message, body):
    """The effect of one message, in the open transaction. This function is yours, the rest is protocol."""
    try:
        total = json.loads(body, parse_float=decimal.Decimal)["total"]
        row = (message.message_id, message.headers["aggregate_id"], total)
    except (ValueError, TypeError, KeyError) as error:
        raise Permanent(f"read order: {error!r}") from error
    try:
        db.execute("INSERT INTO notifications (message_id, order_id, total) VALUES (%s, %s, %s)", row)
    except psycopg.DataError as error:  # a value that is refused, and all of them are the message's
        raise Permanent(f"write order: {error}") from error


def fingerprint(message, body):
    """What tells events with the same id apart. Of a header that is neither text nor a truth value pika does not say
    what it is: then there is nothing that does."""
    headers = {k: v for k, v in (message.headers or {}).items() if not isinstance(v, (type(None), dict, list))}
    parts = [headers.pop("aggregate_type", None), headers.pop("aggregate_id", None), message.type]
    payload, attributes = unwrap(message, body)
    parts, named = [str(part or "").encode() for part in parts] + [payload], [("ce_", *a) for a in attributes.items()]
    is_cloud_event = attributes or any(headers.get(prefix + "specversion") for prefix in PREFIXES)
    for name, value in headers.items():
        if name in CHANGING or name.startswith(PASSING) or is_cloud_event and name == "content-type":
            continue
        if not isinstance(value, (str, bool)):
            return None
        value = {True: "true", False: "false"}.get(value, value)
        prefix = next((p for p in PREFIXES if is_cloud_event and name.startswith(p)), "")
        named.append(("ce_" if prefix else "", name[len(prefix):], value))
    for name, value in sorted((p + name, value) for p, name, value in named if not (p and name in ATTRIBUTES)):
        parts += name.encode(), value.encode()  # UTF-8 has the order of its characters
    hashed = hashlib.sha256(b"".join(struct.pack(">Q", len(part)) + part for part in parts))
    return b"\2" + hashed.digest()[:15]


def unwrap(message, body):
    """Payload and attributes of a CloudEvent in structured mode, as the relay writes it: its members are strings, and
    the last has the payload. What has another form may be the payload of a service: it stands as it is."""
    kind = lambda text: (text or "").split(";")[0].strip().lower()
    members, data, value = body[:-1].partition(b',"data":')
    if not data:
        members, base, value = body[:-1].partition(b',"data_base64":')
    try:
        attributes, text = json.loads((members + b"}").decode()), body.decode()
        if kind(message.content_type) != "application/cloudevents+json" or text[-1:] != "}" \
                or attributes["id"] != message.message_id or not all(isinstance(v, str) for v in attributes.values()):
            return body, {}
        if data and kind(attributes.get("datacontenttype")) in ("application/json", "text/json"):
            return value, attributes
        text = json.loads(value.decode()) if data or base else ""
        return text.encode() if data else base64.b64decode(text, validate=True), attributes
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return body, {}


def record(db, message, body):
    """Records the message as processed; False if it was before. An id that another event has had, as when a
    sequence was reset, is no duplicate: that event has had no effect. A duplicate writes to the WAL, so that its
    COMMIT waits for a synchronous standby: that of the first may have been cut short while it waited."""
    key, content = (SERVICE, message.message_id), fingerprint(message, body)
    try:
        if db.execute(RECORD, (*key, content)).rowcount == 1:
            return True
        other = db.execute(OTHER, (*key, content, content))
        db.execute("SELECT pg_logical_emit_message(true, 'inbox', '')")
    except psycopg.DataError as error:
        raise Permanent(f"the id is no text for the database: {error}") from error
    except psycopg.Error as error:
        raise Unavailable(f"record the message: {error}") from error
    if other.rowcount:
        raise Permanent("an event with another content was processed under this id")
    return False


def process(db, message, body):
    """Commits the effect and the row that remembers it together, so that there is one effect: of two
    transactions with the same id the second waits for the first, and finds its row."""
    if not message.message_id:
        raise Permanent("the message has no id: a second delivery would not be recognized")
    with db.transaction():
        if new := record(db, message, body):
            try:
                handle(db, message, body)
            finally:  # whatever it raised: another attempt would find a row that COMMIT by SQL has left
                if db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                    raise Permanent("handle ended the transaction: its effect may be there in part")
        # After an error that handle has caught COMMIT would roll back and succeed: the effect would be lost.
        if db.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
            raise RuntimeError("handle went on after an error of the database")
    return "success" if new else "duplicate"


def reason(error):
    return (str(error) or repr(error)).splitlines()[0][:1000]  # PostgreSQL's further lines have values of rows


def give_on(channel, message, body, error):
    """Publishes a failed message to its next retry queue, or as a dead letter. It returns when the broker
    has confirmed that a queue has it, and raises otherwise: only then may the original be acknowledged."""
    headers = {k: v for k, v in (message.headers or {}).items() if not k.startswith(BROKERS) and k not in ("CC", "BCC")}
    count, now = str(headers.pop("x-retry-count", 0)), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    attempts = 1 + (int(count) if re.fullmatch("[0-9]{1,9}", count) else 0)
    headers = {"first_failed_at": now, **headers, "failure_reason": reason(error)}
    message.headers, message.expiration, message.user_id, message.delivery_mode = headers, None, None, 2
    if attempts <= len(LEVELS) and not isinstance(error, Permanent):
        headers["x-retry-count"], queue = attempts, f"{SERVICE}.retry.{LEVELS[attempts - 1]}"
        channel.basic_publish(f"{SERVICE}.return", queue, body, message, mandatory=True)
        return "retry"
    headers.update(failure_class="permanent" if isinstance(error, Permanent) else "transient", attempts=attempts,
                   failed_at=now, original_destination=SERVICE, consumer_service=SERVICE)
    channel.basic_publish("outbox.dlx", SERVICE, body, message, mandatory=True)
    return "dlq"


def declare(channel):
    """Makes exchanges and queues, and raises when the broker has them otherwise."""
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}
    safe = quorum | {"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
                     "x-dead-letter-routing-key": SERVICE, "x-dead-letter-exchange": f"{SERVICE}.return"}
    queues = {SERVICE: safe | {"x-single-active-consumer": True, "x-delivery-limit": 100,
                              "x-dead-letter-exchange": "outbox.dlx"}}
    for level in LEVELS:
        milliseconds = int(level[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000}[level[-1]]
        queues[f"{SERVICE}.retry.{level}"] = safe | {"x-message-ttl": milliseconds}
    channel.exchange_declare(f"{SERVICE}.return", "direct", durable=True)
    channel.exchange_declare("outbox.dlx", "direct", durable=True)
    channel.queue_declare(f"{SERVICE}.dlq", durable=True, arguments=quorum | {"x-overflow": "reject-publish"})
    channel.queue_bind(f"{SERVICE}.dlq", "outbox.dlx", SERVICE)
    for name, arguments in queues.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, f"{SERVICE}.return", name)
    channel.queue_bind(SERVICE, EXCHANGE, BINDING)


def connect():
    """Returns a session with a database that records messages, and has the records after a crash."""
    try:
        db = psycopg.connect(DATABASE, autocommit=True)  # process() begins the transactions
        with db.transaction(force_rollback=True):
            recorded = db.execute(RECORD, (SERVICE, "", b"")).rowcount
            safe = db.execute("SELECT FROM pg_class WHERE oid = 'processed_messages'::regclass AND relpersistence = 'p'"
                              " AND current_setting('synchronous_commit') <> 'off'").rowcount
    except psycopg.Error as error:
        raise Unavailable(f"connect to the database: {error}") from error
    if recorded and safe:
        return db
    raise SystemExit("synchronous_commit is off, or processed_messages is unlogged or refuses rows: it would forget")


def consume(broker, channel, db):
    channel.confirm_delivery()  # basic_publish waits for the confirm
    channel.basic_qos(prefetch_count=1)
    declare(channel)
    logging.info("connected: consuming from queue %s", SERVICE)
    for delivery, message, body in channel.consume(SERVICE):
        outcome, losses = None, 0
        while outcome is None:
            try:
                db = connect() if db.closed else db
                outcome = process(db, message, body)
            except Exception as error:
                logging.warning("message %s: %s", message.message_id, reason(error))
                losses += db.closed and not isinstance(error, Unavailable)
                # Whether a lost COMMIT arrived the next try finds out. A message that ends sessions is given on.
                if isinstance(error, Unavailable) or db.closed and losses <= 3:
                    db.close()
                    broker.sleep(1)  # heartbeats are answered
                else:
                    outcome = give_on(channel, message, body, error)
        channel.basic_ack(delivery.delivery_tag)
        logging.info("message %s: %s", message.message_id, outcome)


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pika").setLevel("CRITICAL")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as Ctrl-C: an open transaction is rolled back
    try:
        while True:
            try:
                with connect() as db, pika.BlockingConnection(pika.URLParameters(BROKER)) as broker:
                    consume(broker, broker.channel(), db)
            except (pika.exceptions.AMQPError, Unavailable, OSError) as error:
                logging.warning("connect again: %r", error)  # what was not acknowledged is delivered again
                time.sleep(1)
    except KeyboardInterrupt:
        pass
    finally:
        logging.info("ended")
