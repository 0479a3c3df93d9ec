package ags1.interop.parquet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;

/** Writes, reads and rotates with parquet-java's key tools, which Hadoop properties drive. */
final class KeyTools {
  private static final Map<String, Class<? extends KmsClient>> CLIENTS =
      Map.of("server", ServerWrapKms.class, "local", LocalWrapKms.class);

  private KeyTools() {}

  static ObjectNode run(String command, Options request) throws Exception {
    if (!request.flag("keep_caches", false)) {
      KeyToolkit.removeCacheEntriesForAllTokens();
    }
    MasterKeys.WRAPS.set(0);
    MasterKeys.UNWRAPS.set(0);
    Configuration configuration = configuration(request);
    ObjectNode answer;
    switch (command) {
      case "keytools_write":
        answer = WriteCommand.run(request, configuration, null);
        break;
      case "keytools_read":
        answer = ReadCommand.run(request, configuration, null);
        break;
      case "keytools_metadata":
        answer = MetadataCommand.run(request, configuration, null);
        break;
      default:
        KeyToolkit.rotateMasterKeys(request.text("folder"), configuration);
        answer = ParquetPeer.JSON.createObjectNode();
    }
    return answer.put("wraps", MasterKeys.WRAPS.get()).put("unwraps", MasterKeys.UNWRAPS.get());
  }

  private static Configuration configuration(Options request) {
    Configuration configuration = Hadoop.configuration();
    configuration.set("parquet.crypto.factory.class", PropertiesDrivenCryptoFactory.class.getName());
    Class<? extends KmsClient> client = CLIENTS.get(request.text("kms", "server"));
    if (client == null) {
      throw new IllegalArgumentException("kms is server or local");
    }
    configuration.set(KeyToolkit.KMS_CLIENT_CLASS_PROPERTY_NAME, client.getName());
    configuration.set(MasterKeys.OLD_LIST, list(request.members("master_keys")));
    if (request.has("new_master_keys")) {
      configuration.set(MasterKeys.NEW_LIST, list(request.members("new_master_keys")));
    }
    request.members("properties").forEach((name, value) -> configuration.set(name, value.asText()));
    return configuration;
  }

  private static String list(Map<String, JsonNode> keys) {
    return keys.entrySet().stream()
        .map(each -> each.getKey() + ":"
            + Base64.getEncoder().encodeToString(Options.parseHex(each.getValue().asText())))
        .collect(Collectors.joining(","));
  }
}
