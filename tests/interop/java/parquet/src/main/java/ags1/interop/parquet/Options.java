package ags1.interop.parquet;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Typed access to the members of a JSON object; an absent member and a null are the same. */
final class Options {
  private static final HexFormat HEX = HexFormat.of();
  private final JsonNode node;

  Options(JsonNode node) {
    if (!node.isObject()) {
      throw new IllegalArgumentException("not a JSON object");
    }
    this.node = node;
  }

  boolean has(String name) {
    return node.hasNonNull(name);
  }

  private JsonNode required(String name) {
    if (!has(name)) {
      throw new IllegalArgumentException("the member " + name + " is missing");
    }
    return node.get(name);
  }

  JsonNode value(String name) {
    return required(name);
  }

  Options optional(String name) {
    return has(name) ? new Options(node.get(name)) : null;
  }

  String text(String name) {
    return required(name).asText();
  }

  String text(String name, String otherwise) {
    return has(name) ? text(name) : otherwise;
  }

  long number(String name) {
    return required(name).asLong();
  }

  long number(String name, long otherwise) {
    return has(name) ? number(name) : otherwise;
  }

  boolean flag(String name, boolean otherwise) {
    return has(name) ? node.get(name).asBoolean() : otherwise;
  }

  /** Bytes that the member gives in hex, or null without the member. */
  byte[] bytes(String name) {
    return has(name) ? HEX.parseHex(text(name)) : null;
  }

  List<String> texts(String name) {
    List<String> values = new ArrayList<>();
    if (has(name)) {
      node.get(name).forEach(each -> values.add(each.asText()));
    }
    return values;
  }

  Map<String, JsonNode> members(String name) {
    Map<String, JsonNode> values = new LinkedHashMap<>();
    if (has(name)) {
      node.get(name).properties().forEach(each -> values.put(each.getKey(), each.getValue()));
    }
    return values;
  }

  static byte[] parseHex(String hex) {
    return HEX.parseHex(hex);
  }

  static String hex(byte[] bytes) {
    return HEX.formatHex(bytes);
  }
}
