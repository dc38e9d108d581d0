// Asks real Debezium and Kafka Connect classes what they make of the questions on standard input (JSON, one per line), and
// writes each question with its answers. README.md says how to run it; the Go tests need only what it wrote.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.config.CommonConnectorConfig.BinaryHandlingMode;
import io.debezium.config.CommonConnectorConfig.FieldNameAdjustmentMode;
import io.debezium.config.CommonConnectorConfig.SchemaNameAdjustmentMode;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresType;
import io.debezium.connector.postgresql.PostgresValueConverter;
import io.debezium.connector.postgresql.TypeRegistry;
import io.debezium.connector.postgresql.UnchangedToastedPlaceholder;
import io.debezium.connector.postgresql.connection.PostgresDefaultValueConverter;
import io.debezium.connector.postgresql.connection.pgoutput.PgOutputReplicationMessage;
import io.debezium.data.Envelope;
import io.debezium.jdbc.JdbcValueConverters.DecimalMode;
import io.debezium.jdbc.TemporalPrecisionMode;
import io.debezium.relational.Column;
import io.debezium.transforms.outbox.EventRouter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.sql.Types;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.postgresql.core.TypeInfo;
import org.postgresql.jdbc.TimestampUtils;
import org.postgresql.jdbc.TypeInfoCache;

public class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final TypeInfo INFO = new TypeInfoCache(null, -1);
    static TypeRegistry registry;
    static UnchangedToastedPlaceholder placeholder;
    static final Map<String, Converter> CONVERTERS = new LinkedHashMap<>();
    static final Map<String, HeaderConverter> HEADERS = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        registry();
        converters();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null;) {
            ObjectNode question = (ObjectNode) JSON.readTree(line);
            switch (args[0]) {
                case "columns" -> column(question);
                case "expand" -> expand(question);
                case "names" -> name(question);
                default -> floats(question);
            }
            out.println(JSON.writeValueAsString(question));
        }
        out.flush();
    }

    // The registry is made without a database: it gets the types that matter, as pgjdbc describes them.
    static void registry() throws Exception {
        Field f = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        f.setAccessible(true);
        registry = (TypeRegistry) ((sun.misc.Unsafe) f.get(null)).allocateInstance(TypeRegistry.class);
        placeholder = (UnchangedToastedPlaceholder) ((sun.misc.Unsafe) f.get(null)).allocateInstance(UnchangedToastedPlaceholder.class);
        for (Field map : UnchangedToastedPlaceholder.class.getDeclaredFields()) {
            if (map.getType() == Map.class) {
                map.setAccessible(true);
                map.set(placeholder, new HashMap<>());
            }
        }
        for (String name : List.of("oidToType", "nameToType")) {
            Field map = TypeRegistry.class.getDeclaredField(name);
            map.setAccessible(true);
            map.set(registry, new HashMap<>());
        }
        for (Field oid : TypeRegistry.class.getDeclaredFields()) {
            if (oid.getName().endsWith("Oid") && oid.getType() == int.class) {
                oid.setAccessible(true);
                oid.setInt(registry, Integer.MIN_VALUE);
            }
        }
        Method add = TypeRegistry.class.getDeclaredMethod("addType", PostgresType.class, String.class);
        add.setAccessible(true);
        Object[][] types = {
                { "bool", 16, Types.BIT }, { "bytea", 17, Types.BINARY }, { "char", 18, Types.CHAR }, { "int8", 20, Types.BIGINT },
                { "int2", 21, Types.SMALLINT }, { "int4", 23, Types.INTEGER }, { "text", 25, Types.VARCHAR }, { "oid", 26, Types.BIGINT },
                { "json", 114, Types.OTHER }, { "xml", 142, Types.SQLXML }, { "cidr", 650, Types.OTHER }, { "float4", 700, Types.REAL },
                { "float8", 701, Types.DOUBLE }, { "macaddr8", 774, Types.OTHER }, { "macaddr", 829, Types.OTHER },
                { "inet", 869, Types.OTHER }, { "bpchar", 1042, Types.CHAR }, { "varchar", 1043, Types.VARCHAR },
                { "date", 1082, Types.DATE }, { "time", 1083, Types.TIME }, { "timestamp", 1114, Types.TIMESTAMP },
                { "timestamptz", 1184, Types.TIMESTAMP }, { "timetz", 1266, Types.TIME }, { "numeric", 1700, Types.NUMERIC },
                { "uuid", 2950, Types.OTHER }, { "jsonb", 3802, Types.OTHER }, { "int4range", 3904, Types.OTHER },
                { "numrange", 3906, Types.OTHER }, { "tsrange", 3908, Types.OTHER }, { "tstzrange", 3910, Types.OTHER },
                { "daterange", 3912, Types.OTHER }, { "int8range", 3926, Types.OTHER },
        };
        for (Object[] t : types) {
            add.invoke(registry, new PostgresType.Builder(registry, (String) t[0], (int) t[1], (int) t[2], -1, INFO).build(), "pg_catalog");
        }
    }

    static void converters() {
        CONVERTERS.put("string", configured(new StringConverter(), Map.of()));
        CONVERTERS.put("json", configured(new JsonConverter(), Map.of("schemas.enable", "false")));
        CONVERTERS.put("schema", configured(new JsonConverter(), Map.of()));
        CONVERTERS.put("numeric", configured(new JsonConverter(), Map.of("schemas.enable", "true", "decimal.format", "NUMERIC")));
        CONVERTERS.put("bytes", configured(new org.apache.kafka.connect.converters.ByteArrayConverter(), Map.of()));
        CONVERTERS.put("binary", configured(new io.debezium.converters.BinaryDataConverter(), Map.of()));
        Map<String, String> string = Map.of("delegate.converter.type", "org.apache.kafka.connect.storage.StringConverter");
        Map<String, String> json = Map.of("delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter",
                "delegate.converter.type.schemas.enable", "false");
        CONVERTERS.put("binary-string", configured(new io.debezium.converters.BinaryDataConverter(), string));
        CONVERTERS.put("binary-json", configured(new io.debezium.converters.BinaryDataConverter(), json));
        CONVERTERS.put("legacy", configured(new io.debezium.converters.ByteArrayConverter(), Map.of()));
        CONVERTERS.put("legacy-string", configured(new io.debezium.converters.ByteArrayConverter(), string));
        SimpleHeaderConverter simple = new SimpleHeaderConverter();
        simple.configure(Map.of());
        HEADERS.put("header", simple);
    }

    static Converter configured(Converter c, Map<String, String> options) {
        c.configure(options, false);
        return c;
    }

    static void answers(ObjectNode question, Schema schema, Object value) {
        ObjectNode out = question.putObject("out");
        CONVERTERS.forEach((name, c) -> put(out, name, () -> c.fromConnectData("t", schema, fresh(value))));
        HEADERS.forEach((name, c) -> put(out, name, () -> c.fromConnectHeader("t", "h", schema, fresh(value))));
        // What is the same as with a simpler converter is left out.
        String[][] like = { { "numeric", "schema" }, { "binary-string", "string" }, { "legacy-string", "string" },
                { "binary-json", "json" }, { "header", "string" }, { "legacy", "bytes" }, { "binary", "bytes" } };
        for (String[] pair : like) {
            if (out.get(pair[0]).equals(out.get(pair[1]))) {
                out.remove(pair[0]);
            }
        }
    }

    // Some converters move a buffer's position.
    static Object fresh(Object value) {
        return value instanceof ByteBuffer b ? b.duplicate() : value;
    }

    interface Bytes {
        byte[] get() throws Exception;
    }

    // "=text", "x" and hexadecimal when it is not UTF-8, "-" for null, "!" for an exception.
    static void put(ObjectNode out, String name, Bytes bytes) {
        String text;
        try {
            byte[] b = bytes.get();
            text = b == null ? "-" : "=" + new String(b, StandardCharsets.UTF_8);
            if (b != null) {
                try {
                    StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(b));
                }
                catch (CharacterCodingException e) {
                    text = "x" + java.util.HexFormat.of().formatHex(b);
                }
            }
            if (text.contains("[B@")) {
                text = "!";
            }
        }
        catch (Exception e) {
            text = "!";
        }
        out.put(name, text);
    }

    // One column and one value of it, as PostgresValueConverter, PostgresDefaultValueConverter and TableSchemaBuilder treat it.
    static void column(ObjectNode q) throws Exception {
        try {
            PostgresType type = registry.get(q.get("oid").asInt());
            Class<?> meta = Class.forName("io.debezium.connector.postgresql.connection.pgoutput.ColumnMetaData");
            Constructor<?> make = meta.getDeclaredConstructors()[0];
            make.setAccessible(true);
            boolean optional = !q.get("notnull").asBoolean();
            String def = q.hasNonNull("default") ? q.get("default").asText() : null;
            Object m = make.newInstance("c", type, false, optional, def != null, def, q.get("typmod").asInt());
            var editor = Column.editor().name("c").jdbcType(type.getJdbcId()).nativeType(type.getOid()).optional(optional)
                    .type(type.getName(), (String) get(m, "getTypeName")).length((int) get(m, "getLength")).scale((int) get(m, "getScale"));
            if (def != null) {
                editor.defaultValueExpression(def);
            }
            Column column = editor.create();
            String[] modes = q.get("modes").asText().split("/");
            PostgresValueConverter values = valueConverter(modes);
            PostgresDefaultValueConverter defaults = new PostgresDefaultValueConverter(values,
                    new TimestampUtils(false, () -> TimeZone.getTimeZone("UTC")), registry);
            SchemaBuilder builder = values.schemaBuilder(column);
            if (optional) {
                builder.optional();
            }
            if (def != null && defaults.supportConversion(type.getName())) {
                defaults.parseDefaultValue(column, def).ifPresent(builder::defaultValue);
            }
            Schema schema = SchemaBuilder.struct().name("s").field("c", builder.build()).build();
            Struct row = new Struct(schema);
            Object raw = q.hasNonNull("text")
                    ? PgOutputReplicationMessage.getValue("c", type, type.getName(), q.get("text").asText(), null, false, registry)
                    : null;
            row.put("c", values.converter(column, schema.field("c")).convert(raw));
            answers(q, schema.field("c").schema(), row.get("c"));
        }
        catch (Exception e) {
            if (System.getenv("TRACE") != null) {
                e.printStackTrace();
            }
            q.put("fault", true);
        }
    }

    static Object get(Object o, String name) throws Exception {
        Method m = o.getClass().getDeclaredMethod(name);
        m.setAccessible(true);
        return m.invoke(o);
    }

    static PostgresValueConverter valueConverter(String[] modes) throws Exception {
        Constructor<?> make = PostgresValueConverter.class.getDeclaredConstructors()[0];
        make.setAccessible(true);
        return (PostgresValueConverter) make.newInstance(StandardCharsets.UTF_8, DecimalMode.valueOf(modes[2].toUpperCase()),
                TemporalPrecisionMode.parse(modes[1]), ZoneOffset.UTC, null, false, registry,
                PostgresConnectorConfig.HStoreHandlingMode.JSON, BinaryHandlingMode.parse(modes[0]),
                PostgresConnectorConfig.IntervalHandlingMode.NUMERIC, placeholder, 2);
    }

    // A payload through the Event Router with table.expand.json.payload, without an envelope and with one.
    static void expand(ObjectNode q) {
        for (String envelope : List.of("", "type:envelope")) {
            try (EventRouter<SourceRecord> router = new EventRouter<>()) {
                Map<String, String> options = new HashMap<>(Map.of("table.expand.json.payload", "true",
                        "table.json.payload.null.behavior", q.path("nulls").asText("ignore"),
                        "field.name.adjustment.mode", q.path("names").asText("none")));
                if (!envelope.isEmpty()) {
                    options.put("table.fields.additional.placement", envelope);
                }
                router.configure(options);
                Schema row = SchemaBuilder.struct().name("p.public.outbox.Value").field("id", Schema.STRING_SCHEMA)
                        .field("aggregatetype", Schema.STRING_SCHEMA).field("aggregateid", Schema.STRING_SCHEMA)
                        .field("type", Schema.STRING_SCHEMA).field("payload", io.debezium.data.Json.builder().optional().build()).build();
                Envelope env = Envelope.defineSchema().withName("p.public.outbox.Envelope").withRecord(row)
                        .withSource(SchemaBuilder.struct().field("connector", Schema.STRING_SCHEMA).build()).build();
                Struct after = new Struct(row).put("id", "1").put("aggregatetype", "a").put("aggregateid", "k").put("type", "T")
                        .put("payload", q.get("text").asText());
                Struct source = new Struct(env.schema().field("source").schema()).put("connector", "postgresql");
                SourceRecord in = new SourceRecord(Map.of(), Map.of(), "p.public.outbox", env.schema(),
                        env.create(after, source, java.time.Instant.EPOCH));
                try {
                    SourceRecord out = router.apply(in);
                    ObjectNode answers = q.putObject(envelope.isEmpty() ? "plain" : "envelope");
                    for (String name : List.of("string", "json", "schema")) {
                        put(answers, name, () -> CONVERTERS.get(name).fromConnectData("t", out.valueSchema(), out.value()));
                    }
                }
                catch (Exception e) {
                    if (System.getenv("TRACE") != null) {
                        e.printStackTrace();
                    }
                    q.put(envelope.isEmpty() ? "plain" : "envelope", "!");
                }
            }
        }
    }

    // A name as schema.name.adjustment.mode and field.name.adjustment.mode adjust it.
    static void name(ObjectNode q) {
        String mode = q.get("mode").asText();
        var adjuster = q.get("field").asBoolean() ? FieldNameAdjustmentMode.parse(mode).createAdjuster()
                : SchemaNameAdjustmentMode.parse(mode).createAdjuster();
        q.put("out", adjuster.adjust(q.get("name").asText()));
    }

    // Double.toString and Float.toString of the numbers with these bits.
    static void floats(ObjectNode q) {
        if (q.has("double")) {
            q.put("out", Double.toString(Double.longBitsToDouble(Long.parseUnsignedLong(q.get("double").asText(), 16))));
        }
        else {
            q.put("out", Float.toString(Float.intBitsToFloat(Integer.parseUnsignedInt(q.get("float").asText(), 16))));
        }
    }
}
