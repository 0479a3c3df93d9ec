package ags1.interop.parquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.parquet.Version;

/**
 * Drives parquet-java over a line protocol.
 *
 * <p>One JSON object per line on standard input, with the name of the command in {@code command}; one JSON object per
 * line on standard output. An answer with a member {@code error} is a refusal: the class of the Java exception, its
 * {@code message} and the {@code causes} beneath it. Bytes are hex in both directions.
 */
public final class ParquetPeer {
  static final ObjectMapper JSON = new ObjectMapper();

  private ParquetPeer() {}

  public static void main(String[] args) throws IOException {
    PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.print(answer(line) + "\n");
      answers.flush();
    }
  }

  private static String answer(String line) throws JsonProcessingException {
    ObjectNode answer;
    try {
      answer = dispatch(new Options(JSON.readTree(line)));
    } catch (Exception | OutOfMemoryError | StackOverflowError | AssertionError e) {
      answer = JSON.createObjectNode();
      answer.put("error", e.getClass().getName()).put("message", String.valueOf(e.getMessage()));
      ArrayNode causes = answer.putArray("causes");
      for (Throwable cause = e.getCause(); cause != null && causes.size() < 10; cause = cause.getCause()) {
        causes.add(cause.getClass().getName() + ": " + cause.getMessage());
      }
    }
    return JSON.writeValueAsString((JsonNode) answer);
  }

  private static ObjectNode dispatch(Options request) throws Exception {
    String command = request.text("command");
    switch (command) {
      case "version":
        return JSON.createObjectNode()
            .put("parquet", Version.VERSION_NUMBER)
            .put("created_by", Version.FULL_VERSION)
            .put("java", System.getProperty("java.version"));
      case "write":
        return WriteCommand.run(request, Hadoop.configuration(), Crypto.encryption(request.optional("encryption")));
      case "read":
        return ReadCommand.run(request, Hadoop.configuration(), Crypto.decryption(request.optional("decryption")));
      case "metadata":
        return MetadataCommand.run(request, Hadoop.configuration(), Crypto.decryption(request.optional("decryption")));
      case "rewrite":
        return RewriteCommand.run(request);
      case "keytools_write":
      case "keytools_read":
      case "keytools_metadata":
      case "rotate":
        return KeyTools.run(command, request);
      default:
        throw new IllegalArgumentException("unknown command: " + command);
    }
  }
}
