package ags1.interop;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.IcebergBuild;
import org.apache.iceberg.encryption.Ags1Bridge;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.encryption.KeyListBridge;
import org.apache.iceberg.encryption.KeyManagementClient;
import org.apache.iceberg.encryption.NativeEncryptionOutputFile;
import org.apache.iceberg.encryption.StandardEncryptionManager;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;

/**
 * Drives Iceberg's own AES GCM Stream classes over a line protocol.
 *
 * <p>One request per line on standard input, fields separated by tabs; one answer per line on standard output:
 * {@code ok} and fields, or {@code error}, an exception class and its message. Bytes are hex; {@code -} is an absent
 * value, and an empty field is an empty byte string.
 */
public final class Ags1Peer {
  private static final HexFormat HEX = HexFormat.of();
  private static final int COPY_BYTES = 1 << 20;

  private Ags1Peer() {}

  public static void main(String[] args) throws IOException {
    PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      // A negative limit keeps trailing empty fields, which mean empty byte strings.
      answers.print(answer(line.split("\t", -1)) + "\n");
      answers.flush();
    }
  }

  private static String answer(String[] request) {
    try {
      return String.join("\t", prepend("ok", dispatch(request)));
    } catch (Exception | OutOfMemoryError e) {
      String message = String.valueOf(e.getMessage()).replaceAll("[\t\r\n]+", " ");
      return String.join("\t", "error", e.getClass().getName(), message);
    }
  }

  private static List<String> dispatch(String[] r) throws Exception {
    switch (r[0]) {
      case "version":
        return List.of(
            IcebergBuild.version(), System.getProperty("java.version"), String.valueOf(Ags1Bridge.takesLength()));
      case "encrypt":
        return List.of(String.valueOf(encrypt(bytes(r[1]), bytes(r[2]), r[3], r[4])));
      case "decrypt":
        return List.of(String.valueOf(decrypt(open(r[1], r[2], r[3], r[4]), r[5])));
      case "pread":
        return pread(open(r[1], r[2], r[3], r[4]), r[5]);
      case "encode":
        return List.of(HEX.formatHex(Ags1Bridge.encode(bytes(r[1]), bytes(r[2]), number(r[3]))));
      case "decode":
        return decode(bytes(r[1]));
      case "encrypt-managed":
        return encryptManaged(Integer.parseInt(r[1]), r[2], r[3]);
      case "decrypt-managed":
        return List.of(String.valueOf(decryptManaged(bytes(r[1]), r[2], r[3])));
      case "bench":
        return bench(r);
      case "keys-add":
        return keysAdd(r);
      case "keys-open":
        return keysOpen(r);
      case "keys-json":
        return Arrays.stream(r).skip(1).map(KeyListBridge::rewritten).toList();
      case "table-json":
        return List.of(KeyListBridge.rewrittenTable(Files.readString(Path.of(r[1]))));
      case "table-open":
        return List.of(
            HEX.formatHex(KeyListBridge.openSnapshot(Files.readString(Path.of(r[1])), Long.parseLong(r[2]), r[3])));
      default:
        throw new IllegalArgumentException("unknown request: " + r[0]);
    }
  }

  private static long encrypt(byte[] key, byte[] aadPrefix, String source, String target) throws IOException {
    return copyInto(source, Ags1Bridge.outputFile(localOutput(target), key, aadPrefix));
  }

  /** Copies a file through an encrypting output file; returns the stored length that Iceberg reports. */
  private static long copyInto(String source, OutputFile target) throws IOException {
    PositionOutputStream out = target.createOrOverwrite();
    try (InputStream in = Files.newInputStream(Path.of(source));
        PositionOutputStream closing = out) {
      byte[] buffer = new byte[COPY_BYTES];
      for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
        closing.write(buffer, 0, n);
      }
    }
    // Only a closed stream knows how long it became.
    return out.storedLength();
  }

  private static InputFile open(String key, String aadPrefix, String length, String source) throws Exception {
    return Ags1Bridge.inputFile(localInput(source), bytes(key), bytes(aadPrefix), number(length));
  }

  private static long decrypt(InputFile source, String target) throws IOException {
    long total = 0;
    try (SeekableInputStream in = source.newStream();
        OutputStream out = Files.newOutputStream(Path.of(target))) {
      byte[] buffer = new byte[COPY_BYTES];
      for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
        out.write(buffer, 0, n);
        total += n;
      }
    }
    return total;
  }

  /** Answers the plaintext length and, for each offset:size, the bytes read and their SHA-256. */
  private static List<String> pread(InputFile source, String ranges) throws Exception {
    List<String> answers = new ArrayList<>();
    answers.add(String.valueOf(source.getLength()));
    try (SeekableInputStream in = source.newStream()) {
      for (String range : ranges.split(",")) {
        String[] parts = range.split(":");
        in.seek(Long.parseLong(parts[0]));
        byte[] read = in.readNBytes(Integer.parseInt(parts[1]));
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(read);
        answers.add(read.length + ":" + HEX.formatHex(digest));
      }
    }
    return answers;
  }

  private static List<String> decode(byte[] encoded) throws Exception {
    Ags1Bridge.Fields fields = Ags1Bridge.decode(encoded);
    String length = fields.fileLength() == null ? "-" : String.valueOf(fields.fileLength());
    return List.of(hex(fields.key()), hex(fields.aadPrefix()), length);
  }

  /** Encrypts as a table writer does: the encryption manager draws the key and the prefix. */
  private static List<String> encryptManaged(int keyLength, String source, String target) throws Exception {
    NativeEncryptionOutputFile output = manager(keyLength).encrypt(localOutput(target));
    long length = copyInto(source, output.encryptingOutputFile());
    return List.of(
        HEX.formatHex(Ags1Bridge.withLength(output.keyMetadata().buffer(), length)), String.valueOf(length));
  }

  /** Decrypts as a table reader does: key, prefix and length come from the key metadata. */
  private static long decryptManaged(byte[] keyMetadata, String source, String target) throws Exception {
    return decrypt(
        manager(16).decrypt(EncryptedFiles.encryptedInput(localInput(source), ByteBuffer.wrap(keyMetadata))), target);
  }

  /** bench direction key prefix length source target rounds: nanoseconds of every round. */
  private static List<String> bench(String[] r) throws Exception {
    List<String> nanoseconds = new ArrayList<>();
    int rounds = Integer.parseInt(r[7]);
    for (int i = 0; i < rounds; i++) {
      long start = System.nanoTime();
      if (r[1].equals("encrypt")) {
        encrypt(bytes(r[2]), bytes(r[3]), r[5], r[6]);
      } else if (r[1].equals("decrypt")) {
        decrypt(open(r[2], r[3], r[4], r[5]), r[6]);
      } else {
        throw new IllegalArgumentException("unknown direction: " + r[1]);
      }
      nanoseconds.add(String.valueOf(System.nanoTime() - start));
    }
    return nanoseconds;
  }

  /** keys-add table-key-id data-key-length master-keys time-shift count metadata... entry...: calls, ids, entries. */
  private static List<String> keysAdd(String[] r) throws Exception {
    int first = 6 + Integer.parseInt(r[5]);
    KeyListBridge keys = keyList(r, r[1], Integer.parseInt(r[2]), r[3], Long.parseLong(r[4]), first);
    List<String> answers = new ArrayList<>();
    for (String keyMetadata : List.of(r).subList(6, first)) {
      answers.add(keys.add(bytes(keyMetadata)));
    }
    answers.add(0, keys.calls());
    answers.addAll(keys.entries());
    return answers;
  }

  /** keys-open table-key-id master-keys count key-id... entry...: calls, and the key metadata of each id. */
  private static List<String> keysOpen(String[] r) throws Exception {
    int first = 4 + Integer.parseInt(r[3]);
    KeyListBridge keys = keyList(r, r[1], 16, r[2], 0, first);
    List<String> answers = new ArrayList<>();
    for (String keyId : List.of(r).subList(4, first)) {
      answers.add(HEX.formatHex(keys.open(keyId)));
    }
    answers.add(0, keys.calls());
    return answers;
  }

  private static KeyListBridge keyList(
      String[] r, String tableKeyId, int dataKeyLength, String masterKeys, long timeShift, int first)
      throws Exception {
    return KeyListBridge.of(List.of(r).subList(first, r.length), tableKeyId, dataKeyLength, masterKeys, timeShift);
  }

  private static StandardEncryptionManager manager(int keyLength) throws Exception {
    return Ags1Bridge.manager(keyLength, new NoKeyManagement());
  }

  private static OutputFile localOutput(String path) {
    return org.apache.iceberg.Files.localOutput(new File(path));
  }

  private static InputFile localInput(String path) {
    return org.apache.iceberg.Files.localInput(new File(path));
  }

  private static byte[] bytes(String field) {
    return field.equals("-") ? null : HEX.parseHex(field);
  }

  private static Long number(String field) {
    return field.equals("-") ? null : Long.valueOf(field);
  }

  private static String hex(byte[] bytes) {
    return bytes == null ? "-" : HEX.formatHex(bytes);
  }

  private static List<String> prepend(String first, List<String> rest) {
    List<String> all = new ArrayList<>();
    all.add(first);
    all.addAll(rest);
    return all;
  }

  /** The manager wants a client; sealing and opening single files never calls it. */
  private static final class NoKeyManagement implements KeyManagementClient {
    @Override
    public ByteBuffer wrapKey(ByteBuffer key, String wrappingKeyId) {
      throw new UnsupportedOperationException("no key management here");
    }

    @Override
    public ByteBuffer unwrapKey(ByteBuffer wrappedKey, String wrappingKeyId) {
      throw new UnsupportedOperationException("no key management here");
    }

    @Override
    public void initialize(Map<String, String> properties) {}
  }
}
