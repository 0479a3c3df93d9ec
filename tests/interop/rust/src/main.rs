//! `iceberg-reader ask` answers one line for each line of its standard input, fields between tabs, bytes in hexadecimal
//! digits, `-` for none:
//!
//! stream SOURCE TARGET KEY PREFIX     decrypts an AGS1 stream, as long as its file is
//! key-metadata BYTES                  answers key, prefix and length of the file
//!
//! `iceberg-reader scan|files METADATA [ID=HEX ...]`: the rows of a table's current snapshot, as an Arrow IPC stream on
//! the standard output; of a table without rows, nothing. The arguments after the metadata file are master keys.
//!
//! scan     the crate iceberg reads
//! files    it reads manifest lists and manifests, and the crate parquet the data files with the keys that these have;
//!          deletes are not applied

use std::error::Error;
use std::fs::{self, File};
use std::sync::Arc;
use std::{env, io};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use futures::TryStreamExt;
use iceberg::encryption::kms::MemoryKeyManagementClient;
use iceberg::encryption::{AesGcmCipher, AesGcmFileRead, SecureKey, SensitiveBytes, StandardKeyMetadata};
use iceberg::io::{FileIO, FileRead};
use iceberg::spec::{DataContentType, TableMetadata};
use iceberg::table::Table;
use iceberg::{Runtime, TableIdent};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::encryption::decrypt::FileDecryptionProperties;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|mode| mode == "ask") {
        return answer().await;
    }
    let (Some(mode), Some(location)) = (arguments.next(), arguments.next()) else {
        return Err("say scan or files, and name a metadata file".into());
    };
    let kms = MemoryKeyManagementClient::new();
    for key in arguments {
        let (id, hex) = key.split_once('=').ok_or("write a key as ID=HEX")?;
        kms.add_master_key_bytes(id, SensitiveBytes::new(bytes_of(hex)?))?;
    }
    let metadata: TableMetadata = serde_json::from_slice(&fs::read(&location)?)?;
    let table = Table::builder()
        .file_io(FileIO::new_with_fs())
        .metadata(metadata)
        .metadata_location(location)
        .identifier(TableIdent::from_strs(["tests", "table"])?)
        .kms_client(Arc::new(kms))
        .readonly(true)
        .runtime(Runtime::current())
        .build()?;
    write(if mode == "scan" { scan(&table).await? } else { files(&table).await? })
}

async fn answer() -> Result<()> {
    for line in io::stdin().lines() {
        let line = line?;
        match one(&line.split('\t').collect::<Vec<_>>()).await {
            Ok(said) => println!("ok\t{said}"),
            Err(error) => println!("error\t{}", error.to_string().replace(['\t', '\n'], " ")),
        }
    }
    Ok(())
}

async fn one(fields: &[&str]) -> Result<String> {
    match fields {
        ["stream", source, target, key, prefix] => {
            let input = FileIO::new_with_fs().new_input(format!("file://{source}"))?;
            let size = input.metadata().await?.size;
            let cipher = Arc::new(AesGcmCipher::new(SecureKey::new(&bytes_of(key)?)?));
            let prefix = optional(prefix)?.unwrap_or_default().into_boxed_slice();
            let reader = AesGcmFileRead::new(input.reader().await?, cipher, prefix, size)?;
            fs::write(target, reader.read(0..reader.plaintext_length()).await?)?;
            Ok(String::new())
        }
        ["key-metadata", encoded] => {
            let found = StandardKeyMetadata::decode(&bytes_of(encoded)?)?;
            let prefix = found.aad_prefix().map_or("-".to_string(), hex_of);
            let length = found.file_length().map_or("-".to_string(), |length| length.to_string());
            Ok(format!("{}\t{prefix}\t{length}", hex_of(found.encryption_key().as_bytes())))
        }
        _ => Err("say stream or key-metadata, and what it needs".into()),
    }
}

async fn scan(table: &Table) -> Result<Vec<RecordBatch>> {
    Ok(table.scan().build()?.to_arrow().await?.try_collect().await?)
}

async fn files(table: &Table) -> Result<Vec<RecordBatch>> {
    let snapshot = table.metadata().current_snapshot().ok_or("no snapshot")?;
    let mut found = Vec::new();
    for listed in table.manifest_list_reader(snapshot).load().await?.entries() {
        let manifest = listed.load_manifest(table.file_io()).await?;
        for entry in manifest.entries() {
            if entry.is_alive() && entry.content_type() == DataContentType::Data {
                found.extend(read(entry.file_path(), entry.data_file().key_metadata())?);
            }
        }
    }
    Ok(found)
}

fn read(path: &str, key_metadata: Option<&[u8]>) -> Result<Vec<RecordBatch>> {
    let mut options = ArrowReaderOptions::new();
    if let Some(encoded) = key_metadata {
        let key = StandardKeyMetadata::decode(encoded)?;
        let mut properties = FileDecryptionProperties::builder(key.encryption_key().as_bytes().to_vec());
        if let Some(prefix) = key.aad_prefix() {
            properties = properties.with_aad_prefix(prefix.to_vec());
        }
        options = options.with_file_decryption_properties(properties.build()?);
    }
    let file = File::open(path.strip_prefix("file://").unwrap_or(path))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?.build()?;
    Ok(reader.collect::<std::result::Result<_, _>>()?)
}

fn write(batches: Vec<RecordBatch>) -> Result<()> {
    let Some(first) = batches.first() else { return Ok(()) };
    let mut writer = StreamWriter::try_new(io::stdout(), &first.schema())?;
    for batch in &batches {
        writer.write(batch)?;
    }
    Ok(writer.finish()?)
}

fn bytes_of(hex: &str) -> Result<Vec<u8>> {
    let pairs = (0..hex.len()).step_by(2);
    Ok(pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect::<std::result::Result<_, _>>()?)
}

fn optional(hex: &str) -> Result<Option<Vec<u8>>> {
    if hex == "-" { Ok(None) } else { Ok(Some(bytes_of(hex)?)) }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
