// What java.util.regex makes of a topic, as Connect's RegexRouter asks it: for each line "regex, replacement, value" (tabs between
// them; %XXXX is a UTF-16 unit) the topic, or ! when Java refuses. It made topics.txt:
//
//	java Topics.java < questions > topics.txt

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.regex.*;

class Topics {
    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            String[] q = line.split("\t", -1);
            out.println(q[0] + "\t" + q[1] + "\t" + q[2] + "\t" + topic(plain(q[0]), plain(q[1]), plain(q[2])));
        }
    }

    static String topic(String regex, String replacement, String value) {
        try {
            Matcher m = Pattern.compile(regex).matcher(value);
            return "=" + escaped(m.matches() ? m.replaceFirst(replacement) : value);
        } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
            return "!";
        }
    }

    static String plain(String s) {
        var b = new StringBuilder();
        for (int i = 0; i < s.length(); i++) {
            if (s.charAt(i) != '%') {
                b.append(s.charAt(i));
                continue;
            }
            b.append((char) Integer.parseInt(s.substring(i + 1, i + 5), 16));
            i += 4;
        }
        return b.toString();
    }

    static String escaped(String s) {
        var b = new StringBuilder();
        for (char c : s.toCharArray()) {
            b.append(c < ' ' || c == '%' || c > '~' ? String.format("%%%04x", (int) c) : String.valueOf(c));
        }
        return b.toString();
    }
}
