# Writes the questions for Oracle.java: questions.py columns|expand|floats
import json
import random
import struct
import sys

random.seed(7)


def columns():
    texts = ["", "x", "10711fa5", 'a"b\\c/d', "\b\t\n\f\r\x01\x1f\x7f", "é ß 漢 \u2028 </script> & '", "😀 𝄞", "{\"a\": 1}", "[]"]
    ids = ["6f1c54a2-6c2c-4f3a-9a63-0d4c6a3f0c11"]
    numbers = ["0", "1", "-1", "12.5", "-0.001", "100", "1000000", "123456789012345678901234567890.12", "-99999999999999999999",
               "0.00000001", "0.0000001", "0.10", "1200", "NaN", "Infinity", "-Infinity", "127", "128", "-128", "-129", "255", "256",
               "9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "0.000", "-0.5"]
    stamps = ["2025-11-20 12:25:01.123456", "2025-11-20 12:25:01", "2025-11-20 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.5",
              "1970-01-01 00:00:00", "0001-01-01 00:00:00", "0044-03-15 12:00:00 BC", "10000-01-01 00:00:00", "1582-10-04 00:00:00", "2300-01-01 00:00:00.000001",
              "1600-01-01 00:00:00.5", "294246-12-31 23:59:59.999999", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808", "294276-12-31 23:59:59", "294276-12-31 23:59:59.999999", "4713-11-24 00:00:00 BC",
              "infinity", "-infinity", "2024-02-29 23:59:59.1", "1900-03-01 00:00:00"]
    dates = ["2025-11-20", "1970-01-01", "1969-12-31", "0001-01-01", "0044-03-15 BC", "10000-01-01", "infinity", "-infinity", "1582-10-04", "2024-02-29"]
    times = ["12:25:01.123456", "00:00:00", "23:59:59.999999", "12:25:01.5", "12:25:01", "24:00:00"]
    cases = {
        16: (["t", "f"], ["true", "false", "NULL::boolean"]),
        17: (["\\x", "\\x00ff10", "\\x616263", "\\xfbff"], ["'\\x61'::bytea"]),
        18: (["a", ""], ["'a'::\"char\""]),
        20: (["0", "-9223372036854775808", "9223372036854775807"], ["1", "'-1'::integer", "nextval('a_seq'::regclass)", "(1)::bigint", "'9223372036854775807'::bigint", "NULL::bigint"]),
        21: (["-32768", "7"], ["3", "'3'::smallint", "70000"]),
        23: (["-2147483648", "7"], ["3", "nextval('a_seq'::regclass)", "3000000000", "(3 + 4)"]),
        25: (texts, ["'abc'::text", "''::text", "'it''s'::text", "lower('X'::text)", "NULL::text", "CURRENT_USER", "('a'::text || 'b'::text)", "'two\nlines'::text", "CURRENT_TIMESTAMP"]),
        26: (["0", "4294967295"], ["1"]),
        114: (texts[7:] + ["-"], ["'{}'::json", "json_build_object()", "NULL::json", "'{\"a\": 1}'::json"]),
        142: (["<a>b</a>"], ["'<a/>'::xml", "NULL::xml"]),
        700: (["0", "-0", "1.5", "NaN", "Infinity", "-Infinity", "3.4028235e+38", "1e-45", "16777216", "0.001", "0.0001", "1e+07"], ["1.5", "'-1'::integer", "NULL::real", "'NaN'::real"]),
        701: (["0", "-0", "1.5", "NaN", "Infinity", "-Infinity", "1.7976931348623157e+308", "5e-324", "100", "0.1", "1e+23", "2e+23"], ["1.5", "random()", "'1e3'::double precision"]),
        829: (["08:00:2b:01:02:03"], []),
        869: (["10.0.0.1/8"], ["'10.0.0.1'::inet"]),
        1042: (["ab   "], ["'ab'::bpchar"]),
        1043: (texts, ["'abc'::character varying", "''::character varying", "NULL::character varying"]),
        1082: (dates, ["'2020-02-03'::date", "CURRENT_DATE", "now()", "NULL::date"]),
        1083: (times, ["'10:00:00'::time without time zone", "LOCALTIME", "'10:00:00.25'::time without time zone"]),
        1114: (stamps, ["'2020-02-03 04:05:06'::timestamp without time zone", "now()", "LOCALTIMESTAMP", "CURRENT_TIMESTAMP", "NULL::timestamp without time zone", "(now() AT TIME ZONE 'utc'::text)", "timezone('utc'::text, now())", "'2020-02-03 04:05:06.789'::timestamp without time zone"]),
        1184: ([s.replace(" BC", "") + ("+00" if "inf" not in s else "") + (" BC" if "BC" in s else "") for s in stamps] + ["2025-11-20 12:25:01.12+02", "2025-11-20 12:25:01-03:30", "1850-01-01 00:00:00+01:02:03"],
               ["'2020-02-03 04:05:06+00'::timestamp with time zone", "now()", "CURRENT_TIMESTAMP", "clock_timestamp()", "CURRENT_TIMESTAMP(3)", "'2020-02-03 04:05:06.7+02'::timestamp with time zone"]),
        1266: ([t + "+00" for t in times] + ["01:00:00.5+02", "23:00:00-05:30", "10:00:00+01:02:03"], ["'10:00:00+00'::time with time zone"]),
        1700: (numbers, ["0", "1.5", "'-1'::integer", "'12345.678'::numeric", "random()", "0.00", "'NaN'::numeric", "NULL::numeric"]),
        2950: (ids, ["gen_random_uuid()", "uuid_generate_v4()", "'76019D1A-ad2e-4b22-96e9-1a6d6543c818'::uuid", "NULL::uuid"]),
        3802: (texts[7:], ["'{}'::jsonb", "jsonb_build_object('a'::text, 1)", "NULL::jsonb"]),
        3904: (["[1,3)"], []),
    }
    typmods = {1042: [-1, 9], 1043: [-1, 36], 1083: [-1, 0, 3, 4], 1114: [-1, 0, 3, 6], 1184: [-1, 0, 2, 6], 1266: [-1, 0],
               1700: [-1, 4 + (10 << 16) + 2, 4 + (5 << 16), 4 + (40 << 16) + 10]}
    time_modes = ["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
    for oid, (values, defaults) in cases.items():
        modes = ["bytes/adaptive/precise"]
        if oid == 17:
            modes = [b + "/adaptive/precise" for b in ["bytes", "base64", "base64-url-safe", "hex"]]
        if oid in (1082, 1083, 1114, 1184, 1266):
            modes = ["bytes/" + t + "/precise" for t in time_modes]
        if oid == 1700:
            modes = ["bytes/adaptive/" + d for d in ["precise", "double", "string"]]
        for typmod in typmods.get(oid, [-1]):
            for mode in modes:
                for text in values + [None]:
                    if mode == "bytes/nanoseconds/precise" and typmod == -1 and text:
                        yield {"oid": oid, "typmod": typmod, "notnull": False, "modes": mode, "text": text}
                    if oid == 1700 and typmod > 0 and text is not None and text not in ("NaN", "Infinity", "-Infinity"):
                        scale = (typmod - 4) & 0xFFFF
                        whole, _, fraction = text.partition(".")
                        if len(fraction.rstrip("0")) > scale or len(whole) > (typmod - 4 >> 16) - scale:
                            continue  # PostgreSQL has no such value in such a column
                        text = whole + ("." + fraction[:scale].ljust(scale, "0") if scale else "")
                    if oid in (1083, 1114, 1184, 1266) and text and "." in text and 0 <= typmod < 6:
                        continue
                    yield {"oid": oid, "typmod": typmod, "notnull": text is not None, "modes": mode, "text": text}
                for default in defaults:
                    for notnull in (True, False):
                        text = values[0] if notnull else None
                        if oid == 1700:
                            text = "1" if notnull else None
                            scale = (typmod - 4) & 0xFFFF if typmod > 0 else 0
                            if text and scale:
                                text = "1." + "0" * scale
                        if text and "." in text and oid in (1083, 1114, 1184, 1266):
                            text = text.replace(".123456", "")
                        yield {"oid": oid, "typmod": typmod, "notnull": notnull, "default": default, "modes": mode, "text": text}


def expand():
    texts = [
        '{}', '[]', '[1]', '{"a":1}', '{"a": 1, "b": "x", "c": true, "d": null, "e": 1.5, "f": [1, 2], "g": {"h": {}}}',
        '{"a":2147483647,"b":2147483648,"c":-2147483648,"d":-2147483649,"e":9223372036854775807,"f":-9223372036854775808}',
        '{"a":9223372036854775808}', '{"a":123456789012345678901234567890}', '{"a":[123456789012345678901234567890]}',
        '{"a":1.0}', '{"a":100.0,"b":1e7,"c":1E-5,"d":0.1,"e":-0.0,"f":-0,"g":1e400,"h":5e-324,"i":123456789.123456789}', '{"a":-1e400}',
        '{"a":[]}', '{"a":[null]}', '{"a":[null,1,null]}', '{"a":[1,"x"]}', '{"a":[1,2.5]}', '{"a":[1,3000000000]}', '{"a":[true,false]}',
        '{"a":["x","y"]}', '{"a":[[1],[2,3]]}', '{"a":[[],[1]]}', '{"a":[[1],[]]}', '{"a":[[1],["x"]]}', '{"a":[[1.5]]}',
        '{"a":[[1],[3000000000]]}', '{"a":[{"b":1},{"b":2}]}', '{"a":[{"b":1},null]}', '{"a":[null,{"b":1}]}',
        '{"a":[{"b":1,"c":2},{"b":3}]}', '{"a":[{"b":1},{"b":3,"c":2}]}', '{"a":[{},{"b":1}]}', '{"a":[{"b":1},{"b":"x"}]}',
        '{"a":[{"b":1},{"b":3000000000}]}', '{"a":[{"b":null},{"b":1}]}', '{"a":[{"b":null,"c":1},{"b":1,"c":1}]}', '{"a":[{"b":1},1]}',
        '{"a":[[{"b":1}],[{"b":2,"c":3}]]}', '{"a":[{"b":{"c":1}},{"b":{"c":2}}]}', '{"a":[{"b":[1]},{"b":[]}]}', '{"a":[{"b":[1]},{"b":[2]}]}',
        '{"":1}', '{" ":1}', '{" ":{"a":1}}', '{"a.b":{"c":1}}', '{"a":1,"a":2}', '{"a":1,"b":2,"a":"x"}', '{"a":null,"a":1}', '{"é":"ß","😀":"😀"}', '{"x-y":1,"1":2}',
        '{"a":"\\u0041\\n\\"\\\\\\/\\b\\f\\r\\t\\u0000\\u001f\\u2028"}', '{"a":"\\ud83d\\ude00"}', '{"\\u0061":1}',
        '{"a":1} ', ' {"a":1}', '\n{"a":1}', '{"a":1} trailing', '{"a":1}{"b":2}', '{"a":1}]', '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":+1}', '{"a":1e}', '{"a":1e+5}', '{"a":NaN}',
        '{a:1}', "{'a':1}", '{"a":1,}', '{"a"}', '{"a":}', '{', '{"a":1', '{"a":tru}', '{"a":truex}', '{"a":1x}', '{"a":1 "b":2}', '{"a":"x', '{"a":"\t"}', '{"a":"\\x"}', '{"a":"\\u12"}', '{/*x*/"a":1}',
        '"text"', '1', 'null', 'true', '', ' ', 'x', '[{"a":1}]', '[x', '{"a":[1,2', '{"payload":{"payload":1}}',
        '{"a":{"b":{"c":{"d":[{"e":[{"f":1.5}]}]}}}}', '{"a":[{"b":[{"c":1},{"c":2}]},{"b":[{"c":3}]}]}',
        '{"a":' + '[' * 30 + '1' + ']' * 30 + '}', '{"a":' * 500 + '1' + '}' * 500, '{"a":' * 501 + '1' + '}' * 501,
        '{"a":' * 499 + '[1]' + '}' * 499, '{"a":' * 1000 + '1' + '}' * 1000, '{"a":' * 1001 + '1' + '}' * 1001,
        '{"a":' + '1' * 1000 + '}', '{"a":0.' + '1' * 998 + '}', '{"a":0.' + '1' * 999 + '}', '{"a":' + '1' * 1001 + '}', '{"a":1e-400}',
        '{"a":0.00001,"b":1234567.0,"c":12345678.0,"d":1e21,"e":4.35,"f":2e-3}', '{"a":\u00a01}', '{"a":1,\r\n\t "b":2}', '{"a":[ ]}', '{"a":{ }}',
        '{"a":[{"b":{"x":1}},{"b":{"y":1}}]}', '{"a":[{"b":1,"c":"x"},{"c":"y","b":2}]}', '{"a":[{"b":1},{"c":2}]}', '{"a":[{"b":1},{"b":1,"c":2},{"b":1,"c":2,"d":3}]}',
        '{"a":[1.5,123456789012345678901]}', '{"a":[123456789012345678901,1.5,null]}', '{"a":[123456789012345678901,1]}',
        '{"a":[{"b":1},null,{"b":1,"c":2}]}', '{"a":[{"b":1},null,{"b":1}]}', '{"a":[[{"b":1},{"b":1,"c":2}],null]}', '{"a":[[null],[1]]}',
        '{"a":[{"b":[]},{"b":[]}]}', '{"a":[{"b":[{"c":1}]},{"b":[{"c":1}]}]}',
        '{"a":-}', '{"a":"\\uD83D\\uDE0"}', '{"a":1.0e0}', '{"a":-0.0e-0}', '{"a":0e5}', '{"a":00}', '{"a":"\u007f"}',
    ]
    for nulls in ("ignore", "optional_bytes"):
        for text in texts:
            if nulls == "ignore" or "null" in text:
                yield {"text": text, "nulls": nulls}
    for names in ("avro", "avro_unicode"):
        for text in ['{"a-b":1,"c":{"d.e":[1],"f":"x"}}', '{"a-b":1,"a.b":"x","a_b":true}', '{"a_b":true,"a-b":1}', '{"1":1,"_1":"x"}',
                     '{"a":[{"b-c":1},{"b-c":2}]}', '{"ä":1}', '{"a_ub":1,"a-b":2}', '{"a":1}', '{"a-b":[],"a_b":1}']:
            yield {"text": text, "nulls": "ignore", "names": names}



def floats():
    for k in range(0, 2046, 3):
        yield {"double": "%x" % ((k + 1) << 52)}
    for k in range(52):
        yield {"double": "%x" % (1 << k)}
    for k in range(254):
        yield {"float": "%x" % ((k + 1) << 23)}
    for k in range(23):
        yield {"float": "%x" % (1 << k)}
    for _ in range(400):
        yield {"double": "%x" % random.getrandbits(64)}
        yield {"float": "%x" % random.getrandbits(32)}
    for _ in range(400):
        f = random.choice([1, -1]) * round(random.uniform(0, 10 ** random.randint(-6, 12)), random.randint(0, 9))
        yield {"double": struct.pack(">d", f).hex()}
        yield {"float": struct.pack(">f", f).hex()}
    for f in ["0", "-0", "1", "0.001", "0.00099999999999999", "9999999", "10000000", "9999999.999999999", "1e23", "2e23", "8.41e21", "2.2250738585072014E-308"]:
        yield {"double": struct.pack(">d", float(f)).hex()}
        yield {"float": struct.pack(">f", float(f)).hex()}


def names():
    for name in ["a", "1a", "_a", "a.b", "a-b", "ä", "é1", "Ωx", "x漢", "😀", "9", ".a", "a b", "-", "٣x", "A_z.9"]:
        for mode in ["none", "avro", "avro_unicode"]:
            for field in [False, True]:
                yield {"name": name, "mode": mode, "field": field}


for question in {"names": names, "columns": columns, "expand": expand, "floats": floats}[sys.argv[1]]():
    print(json.dumps(question, ensure_ascii=False))
